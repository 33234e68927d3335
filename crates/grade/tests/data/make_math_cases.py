"""Makes fresh cases for the math grader: random answers, rewritten or changed, judged by the official library.

    pip install math-verify==0.9.0 antlr4-python3-runtime==4.13.2
    python make_math_cases.py SEED COUNT > math.jsonl

Half of the cases are equal, half are not, as far as the answers made allow; judgements that ran into the library's
time limit are left out.
"""

import json
import logging
import random
import sys
import time

from math_verify.metric import math_metric
from math_verify.parser import ExprExtractionConfig, LatexExtractionConfig

logging.disable(logging.CRITICAL)
pick = random.choice
VERIFY = math_metric(
    gold_extraction_target=(LatexExtractionConfig(),),
    pred_extraction_target=(ExprExtractionConfig(), LatexExtractionConfig()),
    precision=6,
)
LETTERS = ["x", "y", "n", "a", "k", "\\theta", "\\pi", "x_1", "e", "i", "C", "\\alpha"]
FUNCTIONS = ["\\sin", "\\cos", "\\tan", "\\ln", "\\log", "\\exp", "\\arctan", "\\log_2", "\\sin^2", "\\cos^{-1}", "sqrt"]
WORDS = "the answer is no yes none cat dog Monday USA undefined does not exist infinity and or in A B C 1945 12 True".split()
WRAPPERS = ["%s", "$%s$", "\\(%s\\)", "\\[%s\\]", "$$%s$$", "The answer is \\boxed{%s}.", "Answer: %s",
            "Final answer: $%s$", "$\\boxed{%s}$.", "%s ", "Therefore, the final answer is %s."]


def number():
    return pick([str(random.randrange(13)), str(random.randrange(13)), str(random.randrange(10, 2000)),
                 f"{random.randrange(50)}.{random.randrange(1000)}",
                 f"{random.randrange(1, 999)},{random.randrange(1000):03}", f"-{random.randrange(1, 30)}"])


def atom():
    return number() if random.random() < 0.6 else pick(LETTERS)


def expression(depth):
    if depth == 0:
        return atom()
    part = expression(depth - 1)
    return pick([
        lambda: atom() + pick("+-") + part,
        lambda: atom() + pick(["", " ", "\\cdot ", "\\times ", "*"]) + part,
        lambda: pick(["\\frac{%s}{%s}", "\\dfrac{%s}{%s}", "%s/%s", "(%s)/(%s)"]) % (part, atom()),
        lambda: atom() + "^" + pick(["{%s}" % part, str(random.randrange(10)), "{-2}", "{\\frac{1}{2}}"]),
        lambda: pick(["\\sqrt{%s}", "\\sqrt[3]{%s}", "sqrt(%s)"]) % part,
        lambda: pick(FUNCTIONS) + pick(["(%s)", "{%s}", " %s", "\\left(%s\\right)"]) % part,
        lambda: pick(["|%s|", "\\left|%s\\right|", "\\lfloor %s \\rfloor", "-(%s)"]) % part,
        lambda: pick([atom() + "!", "\\binom{%s}{%s}" % (atom(), atom())]),
        lambda: number() + pick(["\\frac{1}{2}", "\\%", "%", "^\\circ", "\\text{ cm}", " kg", " percent", "_{10}"]),
    ])()


def interval():
    low, high = random.randrange(-9, 5), random.randrange(0, 20)
    shape = pick(["(%s,%s)", "[%s,%s]", "[%s,%s)", "\\left(%s,%s\\right]", "\\{%s,%s\\}"])
    return shape % (pick([low, "-\\infty"]), pick([high, "\\infty"]))


def collection():
    parts = [expression(pick([0, 0, 1])) for _ in range(random.randrange(2, 5))]
    return pick([
        lambda: pick(["(%s)", "[%s]", "\\{%s\\}", "\\left\\{%s\\right\\}", "{%s}"]) % pick([", ", ",", ";"]).join(parts),
        lambda: pick([", ", " and ", " \\text{ or } "]).join(parts),
        interval,
        lambda: interval() + pick([" \\cup ", "\\cap ", "\\setminus ", " ∪ "]) + interval(),
        lambda: pick(["x", "f(x)", "(x,y)"]) + pick(["=", " \\in ", " \\approx "]) + pick([parts[0], interval()]),
        lambda: pick(["x", "2x", "|x|", "x^2"]) + pick(["<", "\\le ", "\\geq ", "\\ne ", "=", "≥"]) + parts[0],
        lambda: number() + "<x" + pick(["<", "\\leq "]) + number(),
        lambda: pick(["\\pm " + parts[0], parts[0] + "\\pm " + parts[1]]),
        lambda: "\\begin{pmatrix}%s & %s \\\\ %s & %s\\end{pmatrix}" % tuple((parts * 2)[:4]),
    ])()


def words():
    return pick(["%s", "\\text{%s}", "\\textbf{%s}"]) % " ".join(pick(WORDS) for _ in range(random.randrange(1, 4)))


def rewritten(answer):
    return pick([
        lambda: answer,
        lambda: answer.replace("\\frac", "\\dfrac").replace(" ", ""),
        lambda: "(" + answer + ")",
        lambda: "x=" + answer,
        lambda: answer + pick([".0", "\\text{ units}", ".", "\\%", " cm", "^\\circ", "+0", "+1"]),
        lambda: "1\\cdot " + answer,
        lambda: "\\frac{2(%s)}{2}" % answer,
        lambda: "\\{" + answer + "\\}",
        lambda: answer.replace("x", "y"),
        lambda: answer.upper() if "\\" not in answer else answer.replace("\\left", "").replace("\\right", ""),
    ])()


def last_box(text):
    start = text.rfind("\\boxed{")
    depth = 0
    for at in range(start + 6, len(text)) if start >= 0 else ():
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return text[start + 7:at]
    return text.strip()


def judged(gold, answer):
    try:
        return VERIFY(["\\boxed{" + gold + "}"], ["\\boxed{" + last_box(answer) + "}"])[0] > 0
    except Exception:
        return False


def main():
    random.seed(int(sys.argv[1]))
    wanted = {True: int(sys.argv[2]) // 2, False: int(sys.argv[2]) // 2}
    while any(wanted.values()):
        make = pick([lambda: expression(pick([0, 1, 1, 2])), collection, collection, words])
        gold = make()
        answer = pick(WRAPPERS) % (rewritten(gold) if random.random() < 0.85 else make())
        start = time.time()
        verdict = judged(gold, answer)
        if time.time() - start < 2 and wanted[verdict]:
            wanted[verdict] -= 1
            print(json.dumps({"gold": gold, "pred": answer, "expected": verdict}, ensure_ascii=False), flush=True)


main()
