"""Scores answer.txt with the function compute_score of reward.py and prints the score."""

import contextlib
import importlib.util
import json
import sys

with open("row.json", encoding="utf-8") as file:
    row = json.load(file)
with open("answer.txt", encoding="utf-8", newline="") as file:
    answer = file.read()
sys.path.insert(0, ".")
with contextlib.redirect_stdout(sys.stderr):
    spec = importlib.util.spec_from_file_location("reward", "reward.py")
    reward = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reward)
    truth = row.pop("ground_truth", "")
    score = float(reward.compute_score(answer, truth, **row))
print(repr(score))
