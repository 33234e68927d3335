"""Prints the score of answer.txt: 1 for the amount, half for the amount in another form, else 0."""

import json
import re

with open("row.json", encoding="utf-8") as file:
    wanted = json.load(file)["ground_truth"]
with open("answer.txt", encoding="utf-8") as file:
    answer = file.read().strip()

if answer == wanted:
    print(1.0)
else:
    numbers = re.findall(r"-?\d+(?:\.\d+)?", answer.replace(",", ""))
    print(0.5 if numbers and float(numbers[-1]) == float(wanted) else 0.0)
