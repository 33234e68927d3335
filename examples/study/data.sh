#!/usr/bin/env bash
# Writes the data of the study of docs/experiments.md below data/study. Usage: examples/study/data.sh SOURCES
# SOURCES holds xquad_en.jsonl, qed_dev.jsonl, squality_train.jsonl, gsm8k_train.jsonl and gsm8k_test_first300.jsonl, as
# published, and the rows of the benchmarks `instruct_follow` and `biomed` as instruct_follow.jsonl and biomed.jsonl.
set -euo pipefail
sources=$(realpath "${1:?usage: data.sh SOURCES}")
here=$(cd "$(dirname "$0")" && pwd)
out=data/study
seen=find,count,sum,extreme,rank,average,distinct,frequent,dates,tree,prose,pattern
unseen=join,json,ledger,units,follow,compare

prepare() { llm-in-sandbox data prepare --seed 1 --input "$sources/$1" --output "$out/$2" "${@:3}"; }
synthesize() { llm-in-sandbox data synthesize --levels 1..4 --validation 0 --output "$out/$1" "${@:2}"; }

# Training. Whole documents of XQuAD are held out.
mkdir -p $out
prepare xquad_en.jsonl xquad --validation 0.16
prepare qed_dev.jsonl qed --validation 0
prepare squality_train.jsonl squality --validation 0
prepare gsm8k_train.jsonl gsm8k --validation 0
synthesize synthetic --kinds $seen --count 3000 --seed 1

# Measuring: one folder per set, all with the same prompt without a sandbox, which leaves room to think.
prepare gsm8k_test_first300.jsonl test-gsm8k --validation 0 --examples 0
synthesize test-seen --kinds $seen --count 600 --seed 101
synthesize test-unseen --kinds $unseen --count 600 --seed 102
set_of() { # NAME ROWS GRADER
    mkdir -p $out/sets/$1
    cp "$2" $out/sets/$1/rows.jsonl
    sed "s/GRADER/$3/" "$here/set.toml" > $out/sets/$1/task.toml
}
set_of seen $out/test-seen/train.jsonl context
set_of unseen $out/test-unseen/train.jsonl context
set_of documents $out/xquad/validation.jsonl context
set_of gsm8k $out/test-gsm8k/train.jsonl context
python3 "$here/../small-tasks/make.py" --seed 2026 --count 240 > $out/small.jsonl
set_of small $out/small.jsonl exact
cp "$sources/instruct_follow.jsonl" "$sources/biomed.jsonl" $out/sets/
