#!/usr/bin/env python3
"""Runs the small tasks with a model and counts right answers.

    python3 examples/small-tasks/score.py --program llm-in-sandbox -- --model NAME --base-url URL --tool-format fenced

Everything after `--` goes to `llm-in-sandbox run`. An answer is right if it equals the expected one, without regard to
blanks around it. Prints one line a task and the score by kind at the end.
"""

import argparse
import collections
import json
import pathlib
import subprocess
import tempfile

HERE = pathlib.Path(__file__).parent


def run(program, options, row, directory):
    inputs = directory / "input"
    inputs.mkdir()
    for name, text in row["input_files"].items():
        (inputs / name).write_text(text)
    command = [program, "run", row["problem_statement"], "--json", "--output", str(directory / "output")]
    if row["input_files"]:
        command += ["--input", str(inputs)]
    done = subprocess.run(command + options, capture_output=True, text=True, check=False)
    try:
        return json.loads(done.stdout)
    except json.JSONDecodeError:
        raise SystemExit(f"{row['id']}: {done.stderr.strip()}") from None


def main():
    parser = argparse.ArgumentParser(description="Score a model on the small tasks.")
    parser.add_argument("--program", default="llm-in-sandbox")
    parser.add_argument("--limit", type=int, help="only the first so many tasks")
    parser.add_argument("options", nargs="*", help="options of `llm-in-sandbox run`, after --")
    args = parser.parse_args()
    rows = [json.loads(line) for line in (HERE / "tasks.jsonl").read_text().splitlines()]
    right, all_of = collections.Counter(), collections.Counter()
    for row in rows[: args.limit]:
        with tempfile.TemporaryDirectory() as directory:
            result = run(args.program, args.options, row, pathlib.Path(directory))
        answer = (result["answer"] or "").strip()
        good = answer == row["ground_truth"]
        right[row["kind"]] += good
        all_of[row["kind"]] += 1
        print(
            f"{'right' if good else 'wrong'}  {row['id']:<14} {result['outcome']:<14} "
            f"{result['spent']['turns']:>3} turns  {answer[:60]!r}",
            flush=True,
        )
    for kind in all_of:
        print(f"{kind:<12} {right[kind]}/{all_of[kind]}")
    print(f"{'all':<12} {sum(right.values())}/{sum(all_of.values())}")


main()
