"""Makes fresh graded cases with the official graders, for the tests of the small graders.

Needs the packages llm-in-sandbox 0.2.0 (the reference), rouge-score 0.1.2, nltk, math-verify 0.9.0.
    python make_small_cases.py KIND COUNT SEED [TEXTS] > KIND.jsonl
KIND: choice, rouge, stem, verdict, prompt, context. TEXTS: a file whose lines are mixed in as material.
"""

import json
import os
import random
import string
import sys

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

LETTERS = string.ascii_letters + "ıſ\u212aİ"
SPACES = [" ", "  ", "", "\n", "\t", "\u00a0", "\u3000", "\u001c", "\u0085", "\u2028", "\u200b", "\r\n"]
ODD = list("ßŉǰẖẗẘẙẚﬁﬃΐΰևÅéÉİıſ\u212a答案是：:.,;!?\"'()[]{}$\\*_-0123½²Ⅳⅷ٣ªº\u0301\u0308ⒶⓑʼʾΣσςДжя中文한가あア𝐀𝒜🙂’“”—…")
WORDS = """a I the answer Answer ANSWER choice is Is are option correct incorrect final boxed box text because not none of
both vitamin patient sodium group is: answer: "answer" choose select C. D) (B) [A] **E** A, B. x = 3 therefore Option
answering unanswered choices isn't it's I'm what which happy running national generalizations relational flies dies died
agreed feed hopping sized controlling rationally geology hopefully analyses cats caresses ponies skies news innings yearly
2024 3.14 1,000 U.S.A. e-mail naïve café Zürich İstanbul Kelvin""".split()
ENDINGS = """s es ies sses ss ed eed ied ing ings y ly ally ational tional enci anci izer bli alli entli eli ousli ization
ation ator alism iveness fulness ousness aliti iviti biliti fulli logi icate ative alize iciti ical ful ness al ance
ence er ic able ible ant ement ment ent ion sion tion ou ism ate iti ous ive ize e ll bled at iz tt ss zz""".split()


def pick(rng, items):
    return items[rng.randrange(len(items))]


def noise(rng, most=6):
    return "".join(pick(rng, ODD) if rng.random() < 0.6 else pick(rng, LETTERS) for _ in range(rng.randrange(most)))


def letter(rng):
    return pick(rng, LETTERS) if rng.random() < 0.85 else pick(rng, ODD)


def any_case(rng, word):
    swaps = {"s": "sSſ", "i": "iIıİ", "k": "kK\u212a"}
    return "".join(pick(rng, swaps.get(c, c + c.upper())) if rng.random() < 0.15 else c for c in word)


def piece(rng, texts):
    s = lambda: pick(rng, SPACES)
    form = rng.randrange(14)
    if form == 0:
        return pick(rng, ['"%s"', '"%s', "%s"]) % any_case(rng, "answer") + s() + pick(rng, ":::：=") + s() + pick(rng, ['"%s"', '"%s" ', "'%s'", '"%s', '" %s"']) % letter(rng)
    if form == 1:
        return any_case(rng, "answer") + s() + pick(rng, [":", "：", "::", " -"]) + s() + letter(rng) + noise(rng, 3)
    if form in (2, 3):
        return any_case(rng, pick(rng, ["answer", "choice", "option"])) + s() + any_case(rng, "is") + s() + letter(rng) + noise(rng, 3)
    if form == 4:
        inside = pick(rng, [letter(rng), noise(rng), "\\text{%s}" % letter(rng), " %s " % letter(rng), "{%s}" % noise(rng), ""])
        return "\\boxed{" + inside + pick(rng, ["}", "}", "}", "", "}}"])
    if form in (5, 6):
        return letter(rng)
    if form == 7:
        return noise(rng)
    if form == 8 and texts:
        return pick(rng, texts)[: rng.randrange(400)]
    return " ".join(pick(rng, WORDS) for _ in range(1 + rng.randrange(6)))


def choice_answer(rng, texts):
    return pick(rng, SPACES) + pick(rng, SPACES + [", "]).join(piece(rng, texts) for _ in range(rng.randrange(4))) + pick(rng, SPACES)


def sentence(rng, texts):
    form = rng.random()
    if texts and form < 0.6:
        return pick(rng, texts)[: rng.randrange(2000)]
    if form < 0.9:
        return pick(rng, [" ", "-", "_", " — ", "\n"]).join(word(rng) if rng.random() < 0.4 else pick(rng, WORDS) for _ in range(rng.randrange(30)))
    return "".join(noise(rng) + pick(rng, SPACES) for _ in range(rng.randrange(20)))


def word(rng):
    base = pick(rng, WORDS).lower() if rng.random() < 0.4 else "".join(pick(rng, "aeiouybcdfghlmnprstvwxz") for _ in range(rng.randrange(7)))
    base = "".join(c for c in base if c in string.ascii_lowercase + string.digits)
    return base + "".join(pick(rng, ENDINGS) for _ in range(rng.randrange(3)))


def varied(rng, text):
    """A text with words dropped, doubled, swapped, changed in case or inflected."""
    words = text.split(" ")
    for _ in range(rng.randrange(6)):
        if not words:
            break
        at = rng.randrange(len(words))
        form = rng.randrange(7)
        if form == 0:
            del words[at]
        elif form == 1:
            words.insert(at, pick(rng, WORDS))
        elif form == 2:
            words[at] = words[at].swapcase()
        elif form == 3:
            words[at] += pick(rng, ENDINGS)
        elif form == 4:
            words = words[at:] + words[:at]
        elif form == 5:
            rng.shuffle(words)
        else:
            words = words[: at + 1]
    return " ".join(words)


def choice(rng, texts):
    from llm_in_sandbox.benchmark.biomed.reward import compute_score, extract_multiple_choice_answer
    answer = choice_answer(rng, texts)
    extracted = extract_multiple_choice_answer(answer)
    truth = pick(rng, [extracted, extracted.lower(), " %s\n" % extracted, pick(rng, string.ascii_uppercase), answer.swapcase(), noise(rng)])
    return {"agent_answer": answer, "ground_truth": truth, "extracted": extracted, "score": compute_score(answer, truth)}


def rouge(rng, texts):
    from rouge_score.rouge_scorer import RougeScorer
    reference = sentence(rng, texts)
    prediction = varied(rng, reference) if rng.random() < 0.7 else sentence(rng, texts)
    score = RougeScorer(["rougeL"], use_stemmer=True).score(reference, prediction)["rougeL"]
    return {"reference": reference, "prediction": prediction, "fmeasure": score.fmeasure}


def stem(rng, texts):
    from nltk.stem.porter import PorterStemmer
    w = word(rng)
    return {"w": w, "stem": PorterStemmer().stem(w)}


def verdict(rng, texts):
    from llm_in_sandbox.benchmark.physics.judge import extract_verdict
    parts = ["correct", "incorrect", "in", "IN ", "Correct", "INCORRECT", "ın", "ﬁn", "n", "not ", "co", "rrect", " ", "</think>", "ß", "un"]
    reply = "".join(pick(rng, parts) if rng.random() < 0.8 else noise(rng, 3) for _ in range(rng.randrange(6)))
    return {"response": reply, "verdict": extract_verdict(reply)}


def prompt(rng, texts):
    from llm_in_sandbox.benchmark.physics.judge import create_judge_prompt
    think = lambda: pick(rng, ["", "", "<think>", "</think>", "</think>"]) + pick(rng, SPACES)
    answer = think() + sentence(rng, texts)[:200] + think() + sentence(rng, texts)[:200] + think()
    row = {"question": sentence(rng, texts)[:200], "ground_truth": noise(rng), "model_answer": answer}
    return row | {"prompt": create_judge_prompt(*row.values())}


def context(rng, texts):
    from llm_in_sandbox.benchmark.instruct_pretrain.reward import compute_score
    domain = pick(rng, ["instruct_pretrain", "long_context", "Instruct_Pretrain-x", "chem", "Biomed:x", "math", "physics"])
    kind = pick(rng, [None, "", "Free-form", "Multiple choice", "MULTIPLE CHOICE (several)", "multiple-choice", "Multiple choice"])
    if kind and kind.lower().startswith("multiple choice") and rng.random() < 0.7:
        several = lambda: pick(rng, [",", ", ", " ,"]).join(pick(rng, "ABCDabcd") + pick(rng, ["", "", " ", "."]) for _ in range(rng.randrange(5)))
        truth, answer = several(), several()
    elif domain in ("math", "physics") or rng.random() < 0.15:
        number = str(rng.randrange(200))
        truth, answer = number, pick(rng, [number, "\\boxed{%s}" % number, number + ".0", str(rng.randrange(200)), "in " + number])
    elif domain in ("chem", "Biomed:x"):
        truth, answer = pick(rng, "ABCDE"), choice_answer(rng, texts)
    else:
        truth = " ".join(pick(rng, WORDS[:30]) for _ in range(rng.randrange(9)))
        answer = varied(rng, truth)
    row = {"domain": domain, "qa_type": kind, "ground_truth": truth, "agent_answer": answer}
    return row | {"score": compute_score(answer, truth, domain=domain, qa_type=kind)}


def main():
    kind, count, seed, *texts = sys.argv[1:]
    rng = random.Random(f"{kind}-{seed}")
    texts = [line.rstrip("\n") for name in texts for line in open(name, encoding="utf-8")]
    real = sys.stdout
    sys.stdout = sys.stderr  # The graders talk.
    seen = set()
    while len(seen) < int(count):
        line = json.dumps(globals()[kind](rng, texts), ensure_ascii=False)
        if line not in seen:
            seen.add(line)
            print(line, file=real)


main()
