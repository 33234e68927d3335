"""Judges cases with the official Math-Verify, as the benchmarks call it, and says how long that took.

Reads lines of JSON with `gold` and `pred` from standard input; prints one JSON object with the seconds, the verdicts
and the package's version. The first cases are judged once more before, so that what is loaded late is loaded.
"""

import importlib.metadata
import json
import logging
import sys
import time

from math_verify.metric import math_metric
from math_verify.parser import ExprExtractionConfig, LatexExtractionConfig

logging.disable(logging.CRITICAL)
VERIFY = math_metric(
    gold_extraction_target=(LatexExtractionConfig(),),
    pred_extraction_target=(ExprExtractionConfig(), LatexExtractionConfig()),
    precision=6,
)


def last_box(text):
    start = text.rfind("\\boxed{")
    depth = 0
    for at in range(start + 6, len(text)) if start >= 0 else ():
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return text[start + 7 : at]
    return text.strip()


def judge(case):
    try:
        return float(VERIFY(["\\boxed{" + case["gold"] + "}"], ["\\boxed{" + last_box(case["pred"]) + "}"])[0] > 0)
    except Exception:
        return 0.0


cases = [json.loads(line) for line in sys.stdin]
for case in cases[:10]:
    judge(case)
began = time.perf_counter()
scores = [judge(case) for case in cases]
seconds = time.perf_counter() - began
version = importlib.metadata.version("math-verify")
print(json.dumps({"version": version, "seconds": seconds, "scores": scores}))
