#!/usr/bin/env python3
"""Generates tasks.jsonl: small tasks for small models, with computed answers.

    python3 examples/small-tasks/make.py > examples/small-tasks/tasks.jsonl
    python3 examples/small-tasks/make.py --seed 7 --count 120 > fresh.jsonl

The same seed gives the same rows; the defaults give tasks.jsonl. A row has `id`, `kind`, `problem_statement`,
`ground_truth` and `input_files` (name to text), like the rows of a benchmark. No row occurs twice.
"""

import argparse
import itertools
import json
import random
from datetime import date, timedelta

SEED, COUNT = 20260131, 24
DICE = random.Random()
NAMES = ["Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gia", "Hugo", "Ines", "Jon", "Kira", "Leo"]
TOWNS = ["Aalen", "Bern", "Como", "Delft", "Essen", "Faro", "Gent", "Hof"]
WORDS = (
    "river stone lamp garden window paper silver morning engine harbour letter bridge winter copper "
    "island market button candle feather forest hammer ladder meadow needle orchard pepper quarry ribbon"
).split()


def primes(limit):
    return [n for n in range(2, limit) if all(n % d for d in range(2, int(n**0.5) + 1))]


def arithmetic():
    limit = DICE.randrange(1500, 3000)
    yield f"What is the sum of all prime numbers below {limit}?", sum(primes(limit)), {}
    n = DICE.randrange(40, 60)
    a, b = 1, 1
    for _ in range(n - 2):
        a, b = b, a + b
    yield f"The Fibonacci numbers begin 1, 1, 2, 3, 5. What is number {n} of them?", b, {}
    base, power = DICE.randrange(12, 20), DICE.randrange(30, 40)
    digits = sum(map(int, str(base**power)))
    yield f"What is the sum of the decimal digits of {base} to the power of {power}?", digits, {}
    first = date(2019, 1, 1) + timedelta(days=DICE.randrange(300))
    last = first + timedelta(days=DICE.randrange(700, 1900))
    yield f"How many days are there from {first} to {last}?", (last - first).days, {}


def counting():
    lines = [" ".join(DICE.choices(WORDS, k=DICE.randrange(4, 9))) for _ in range(60)]
    text = "\n".join(lines) + "\n"
    word = DICE.choice(WORDS)
    yield (
        f"How many lines of notes.txt contain the word {word}?",
        sum(word in line.split() for line in lines),
        {"notes.txt": text},
    )
    yield "How many words does notes.txt have?", len(text.split()), {"notes.txt": text}
    counts = {w: text.split().count(w) for w in WORDS}
    best = max(counts.values())
    top = [w for w in WORDS if counts[w] == best]
    if len(top) > 1:
        text += f"{top[0]}\n"
    yield "Which word occurs most often in notes.txt?", top[0], {"notes.txt": text}
    log = [
        f"2026-01-{DICE.randrange(1, 29):02} {DICE.choice(['INFO', 'INFO', 'WARN', 'ERROR'])} {DICE.choice(WORDS)}"
        for _ in range(80)
    ]
    yield (
        "How many lines of app.log are of level ERROR?",
        sum(line.split()[1] == "ERROR" for line in log),
        {"app.log": "\n".join(log) + "\n"},
    )


def tables():
    rows = [
        (DICE.choice(NAMES), DICE.choice(TOWNS), DICE.randrange(18, 80), DICE.randrange(100, 900))
        for _ in range(40)
    ]
    text = "name,town,age,amount\n" + "".join(f"{n},{t},{a},{m}\n" for n, t, a, m in rows)
    files = {"people.csv": text}
    yield "What is the sum of the column amount in people.csv?", sum(r[3] for r in rows), files
    town = DICE.choice(TOWNS)
    yield (
        f"In people.csv, what is the sum of amount over the rows whose town is {town}?",
        sum(r[3] for r in rows if r[1] == town),
        files,
    )
    yield "How many rows of people.csv have an age above 50?", sum(r[2] > 50 for r in rows), files
    by_name = {n: sum(r[3] for r in rows if r[0] == n) for n in NAMES}
    best = max(by_name, key=by_name.get)
    yield "In people.csv, which name has the largest sum of amount?", best, files


def formatting():
    words = DICE.sample(WORDS, 9)
    files = {"words.txt": "\n".join(words) + "\n"}
    yield "Sort the words of words.txt alphabetically and join them with commas, without blanks.", ",".join(sorted(words)), files
    yield "Give the words of words.txt in upper case and in reverse order, separated by one blank.", " ".join(words[::-1]).upper(), files
    yield "Which words of words.txt have more than six letters? Give them in the order of the file, joined with commas, without blanks.", ",".join(w for w in words if len(w) > 6) or "none", files
    numbers = [DICE.randrange(1000) for _ in range(12)]
    files = {"numbers.txt": " ".join(map(str, numbers)) + "\n"}
    yield "Give the even numbers of numbers.txt in ascending order, joined with a semicolon, without blanks.", ";".join(map(str, sorted(n for n in numbers if n % 2 == 0))), files


def documents():
    people = DICE.sample(NAMES, 6)
    homes = dict(zip(people, DICE.sample(TOWNS, 6)))
    jobs = dict(zip(people, DICE.sample(["baker", "nurse", "pilot", "farmer", "singer", "judge"], 6)))
    files = {
        f"{name.lower()}.txt": f"{name} lives in {homes[name]}. By trade {name} is a {jobs[name]}.\n" for name in people
    }
    one, two, three = DICE.sample(people, 3)
    yield f"In which town does the {jobs[one]} live?", homes[one], files
    yield f"What is the trade of the person who lives in {homes[two]}?", jobs[two], files
    yield f"Who lives in {homes[three]}? Give the name.", three, files
    stock = {w: DICE.randrange(5, 90) for w in DICE.sample(WORDS, 8)}
    half = list(stock)
    files = {
        "north.txt": "".join(f"{w}: {stock[w]}\n" for w in half[:4]),
        "south.txt": "".join(f"{w}: {stock[w]}\n" for w in half[4:]),
    }
    yield "How many items are there in both files together, north.txt and south.txt?", sum(stock.values()), files


def computing():
    start = DICE.randrange(1000, 9999)
    n, steps = start, 0
    while n != 1:
        n, steps = (n // 2 if n % 2 == 0 else 3 * n + 1), steps + 1
    yield f"Start with {start}. Halve an even number, triple an odd one and add 1. After how many steps is it 1?", steps, {}
    a, b = DICE.randrange(10**5, 10**6), DICE.randrange(10**5, 10**6)
    x, y = a, b
    while y:
        x, y = y, x % y
    yield f"What is the greatest common divisor of {a * 12} and {b * 12}?", x * 12, {}
    text = "".join(DICE.choices("abcdefgh", k=200))
    letter = max("abcdefgh", key=text.count)
    if sorted(map(text.count, "abcdefgh"))[-2] == text.count(letter):
        text += letter
    yield f"Which letter occurs most often in {text}?", letter, {}
    total = DICE.randrange(24, 36) * 5
    ways = sum(1 for fifties in range(total // 50 + 1) for _ in range((total - 50 * fifties) // 20 + 1))
    yield f"In how many ways can {total} cents be paid with coins of 50, 20 and 5 cents?", ways, {}


KINDS = [arithmetic, counting, tables, formatting, documents, computing]


def rows():
    """Endless rounds over all kinds. Numbers of a kind continue from round to round."""
    numbers = {kind: itertools.count(1) for kind in KINDS}
    seen = set()
    while True:
        for kind in KINDS:
            for statement, answer, files in kind():
                if (content := json.dumps([statement, files])) in seen:
                    continue
                seen.add(content)
                yield {
                    "id": f"{kind.__name__}-{next(numbers[kind])}",
                    "kind": kind.__name__,
                    "problem_statement": statement,
                    "ground_truth": str(answer),
                    "input_files": files,
                }


def main():
    parser = argparse.ArgumentParser(description="Generate small tasks with computed answers, one JSON object a line.")
    parser.add_argument("--seed", type=int, default=SEED, help="seed of the random numbers (default: %(default)s)")
    parser.add_argument("--count", type=int, default=COUNT, help="number of tasks (default: %(default)s)")
    args = parser.parse_args()
    DICE.seed(args.seed)
    for row in itertools.islice(rows(), args.count):
        print(json.dumps(row))


if __name__ == "__main__":
    main()
