#!/usr/bin/env python3
"""Runs the small tasks with a model and counts right answers.

    python3 examples/small-tasks/score.py --program llm-in-sandbox -- --model NAME --base-url URL --tool-format fenced
    python3 examples/small-tasks/score.py -- --seed 1 --max-turns 6
    python3 examples/small-tasks/score.py -- --seed 1 --max-turns 6 --adapter none
    python3 examples/small-tasks/score.py --plain URL --plain-model NAME

Everything after `--` goes to `llm-in-sandbox run`; without a model it uses the default one, with its own adapter if it has
one and `--adapter none` is not given. With `--plain` there is no sandbox: the model at the server gets the
task with its files in one message, and the last line of its reply is its answer. An answer is right if it equals the
expected one, without regard to blanks around it. Prints one line a task, and at the end the score by kind and the model
with its adapter.
"""

import argparse
import collections
import concurrent.futures
import json
import pathlib
import subprocess
import tempfile
import urllib.request

HERE = pathlib.Path(__file__).parent
LAST_LINE = "\n\nThink it through, then write the answer alone, without a word around it, on the last line."


def in_sandbox(args, row):
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        inputs = directory / "input"
        inputs.mkdir()
        for name, text in row["input_files"].items():
            (inputs / name).write_text(text)
        output = args.keep / row["id"] if args.keep else directory / "output"
        command = [args.program, "run", row["problem_statement"], "--json", "--output", str(output)]
        if row["input_files"]:
            command += ["--input", str(inputs)]
        done = subprocess.run(command + args.options, capture_output=True, text=True, check=False)
    try:
        result = json.loads(done.stdout)
    except json.JSONDecodeError:
        raise SystemExit(f"{row['id']}: {done.stderr.strip()}") from None
    model = result["model"] + (f" with the adapter {result['adapter']}" if result.get("adapter") else "")
    return (result["answer"] or "").strip(), result["outcome"], result["spent"]["turns"], model


def plain(args, row):
    documents = "".join(f"File {name}:\n{text}\n\n" for name, text in row["input_files"].items())
    message = {"role": "user", "content": documents + row["problem_statement"] + LAST_LINE}
    body = {"model": args.plain_model, "messages": [message], "temperature": 0, "seed": 1, "max_tokens": 1000}
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(args.plain + "/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=900) as response:
        choice = json.load(response)["choices"][0]
    lines = [line.strip() for line in choice["message"]["content"].strip().splitlines()]
    return (lines or [""])[-1], choice["finish_reason"], 1, f"{args.plain_model or 'the model'} without a sandbox"


def main():
    parser = argparse.ArgumentParser(description="Score a model on the small tasks.")
    parser.add_argument("--program", default="llm-in-sandbox")
    parser.add_argument("--tasks", type=pathlib.Path, default=HERE / "tasks.jsonl", help="tasks as make.py prints them")
    parser.add_argument("--limit", type=int, help="run only the first LIMIT tasks")
    parser.add_argument("--jobs", type=int, default=1, help="tasks run in parallel (default: %(default)s)")
    parser.add_argument("--keep", type=pathlib.Path, help="save the records below this directory")
    parser.add_argument("--plain", metavar="URL", help="call the model at this server without a sandbox")
    parser.add_argument("--plain-model", metavar="NAME", default="")
    parser.add_argument("options", nargs="*", help="options of `llm-in-sandbox run`, after --")
    args = parser.parse_args()
    rows = [json.loads(line) for line in args.tasks.read_text().splitlines()][: args.limit]
    right, all_of, models = collections.Counter(), collections.Counter(), set()
    answer_one = plain if args.plain else in_sandbox
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        results = pool.map(lambda row: answer_one(args, row), rows)
        for row, (answer, outcome, turns, model) in zip(rows, results):
            models.add(model)
            good = answer == row["ground_truth"]
            right[row["kind"]] += good
            all_of[row["kind"]] += 1
            verdict = "right" if good else "wrong"
            print(f"{verdict}  {row['id']:<14} {outcome:<14} {turns:>3} turns  {answer[:60]!r}", flush=True)
    for kind in all_of:
        print(f"{kind:<12} {right[kind]}/{all_of[kind]}")
    print(f"{'all':<12} {sum(right.values())}/{sum(all_of.values())}  {', '.join(sorted(models))}")


main()
