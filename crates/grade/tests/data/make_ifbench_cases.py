"""Makes `ifbench.jsonl` and `tokens.jsonl`: fresh texts with what the official code says of them.

    python make_ifbench_cases.py IFBENCH NLTK_DATA [PER_CONSTRAINT [SEED [FOLDER]]]

IFBENCH is a checkout of allenai/IFBench at db69a6f, NLTK_DATA a folder with its data; `nltk` (3.10), `emoji` and
`syllapy` must be installed. Texts are built here, near the border between following and not following, and changed
a little at random. Arguments that the official code would draw at random are never left out.
"""

import json
import pathlib
import random
import re
import string
import sys

sys.path.insert(0, sys.argv[1])
import nltk

nltk.data.path.insert(0, sys.argv[2])
nltk.download = lambda *args, **kwargs: True
from ifbench import instructions_registry

HERE = pathlib.Path(__file__).parent
DATA = HERE.parent.parent / "data"
DICT = instructions_registry.INSTRUCTION_DICT
PER = int(sys.argv[3]) if len(sys.argv) > 3 else 6
RANDOM = random.Random(int(sys.argv[4]) if len(sys.argv) > 4 else 1)
FOLDER = pathlib.Path(sys.argv[5]) if len(sys.argv) > 5 else HERE

WORDS = """river lantern quietly seven marble drifts over the old bridge and nobody minds because rain is late today
my sister keeps bees near a mill but she sells no honey yet you may ask for it when they wake in spring or so we
heard from him that this village has one clock which all trust though some say its hands are wrong""".split()
ABBREVIATIONS = [line.strip() + "." for line in (DATA / "punkt_abbrev_types.txt").open()]
STARTERS = [line.strip().title() for line in (DATA / "punkt_sent_starters.txt").open()]
KNOWN = [line.split("\t")[0] for line in (DATA / "punkt_ortho_context.tab").open()]
PAIRS = [
    line.rstrip("\n").replace("##number##", "12").split("\t") for line in (DATA / "punkt_collocations.tab").open()
]
NAMES = "Emma Liam Noah Ava Mia Leo Zoe Nora Aria Ryan Owen Ella Grace David Thomas Claire".split()
ODD = list(".?!,;:'\"()[]{}<>*-–—…`@#$%&/|_«»“”‘’„‽ \n\t") + [
    "...",
    ". . .",
    "--",
    "''",
    "``",
    "'s",
    "n't ",
    "'re ",
    "cannot",
    "gonna",
    " 'tis",
    " 'Twas",
    "d'ye",
    "more'n",
    "wanna ",
    "\u00a0",
    "\u200b",
    "\u2028",
    "\x0b",
    "\r\n",
    "\x85",
    "\x1c",
    "é",
    "ß",
    "İ",
    "ı",
    "ſ",
    "Σ",
    "日本",
    "ア",
    "😀",
    "❤️",
    "👩\u200d👧",
    "٣",
    "½",
    "²",
    "Ⅳ",
    "x\u0301",
    "1,000.50",
    "3.",
    "-5.",
    "p.m.",
    "U.S.",
    "e.g.",
    "Dr.",
    "J.",
    "A.",
    "No. 5",
    "ǅ",
    "\x00",
    "\ufeff",
    "\u3000",
    "𝟠",
    "क्षि",
]
VOWELS = ["a", "o", "u", "i", "e", "th", "str", "n", "b"]
CAPITALS = """Reykjavik Helsinki Oslo Tallinn Stockholm Riga Moscow Copenhagen Vilnius Minsk Dublin Berlin Amsterdam
Warsaw London Brussels Prague Luxembourg Paris Vienna Bratislava Budapest Vaduz Chisinau Bern Ljubljana
Zagreb""".split()
PALINDROMES = "level radar civic rotor kayak madam refer stats tenet racecar deified noon ABBBA".split()


def pick(*items):
    return RANDOM.choice(items)


def word():
    kind = RANDOM.random()
    text = RANDOM.choice(WORDS if kind < 0.6 else KNOWN if kind < 0.8 else STARTERS if kind < 0.87 else ABBREVIATIONS)
    if kind > 0.95:
        text = ". ".join(RANDOM.choice(PAIRS))
    return pick(text, text, text, text.capitalize(), text.upper())


def words(least, most):
    return [RANDOM.choice(WORDS) for _ in range(RANDOM.randint(least, most))]


def phrase(least=2, most=9):
    return " ".join(words(least, most)).capitalize()


def sentences(least=1, most=6):
    return " ".join(
        phrase() + pick(".", ".", ".", "?", "!", "...", ".”", '."', "?!", ".)")
        for _ in range(RANDOM.randint(least, most))
    )


def prose():
    parts = [
        word() + pick(" ", " ", " ", " ", " ", ", ", ". ", "? ", "! ", ".\n", "; ", ".) ", '." ', "", "-", "--", " (")
        for _ in range(RANDOM.randint(1, 30))
    ]
    return pick(sentences(), "".join(parts), odd(sentences()))


def odd(text):
    """The text with a few characters put in, taken out or turned."""
    chars = list(text)
    for _ in range(pick(0, 1, 1, 2, 4)):
        at = RANDOM.randint(0, len(chars))
        kind = RANDOM.random()
        if kind < 0.6:
            chars.insert(at, RANDOM.choice(ODD))
        elif at < len(chars):
            chars[at] = pick("", chars[at].swapcase(), RANDOM.choice(ODD))
    return "".join(chars)


def about(number):
    return float(max(0, number + pick(0, 0, 1, -1, 2)))


def near(text, count, name="N"):
    """An argument near what the text has."""
    return {name: about(count)}, text


def depunct(text):
    return text.translate(str.maketrans("", "", string.punctuation))


def swapped(items):
    items = list(items)
    at = RANDOM.randrange(len(items) - 1)
    items[at], items[at + 1] = items[at + 1], items[at]
    return items


def sometimes(change, items, share=0.3):
    return change(items) if RANDOM.random() < share else items


def pieces(items, least=1, most=12):
    return "".join(RANDOM.choice(items) for _ in range(RANDOM.randint(least, most)))


def csv_text(names, delimiter, rows, quoted):
    cell = lambda: (
        pick('"x"', '"a$b"', '"1"', ' "y" ') if quoted else pick("x", "7", '"a, b"', '"é$"', "b c", '""', 'q"q')
    )
    header = [f'"{name}"' if quoted or RANDOM.random() < 0.1 else name for name in names]
    lines = [delimiter.join(header)]
    for _ in range(rows + pick(0, 0, 0, 0, 1, -1)):
        lines.append(delimiter.join(cell() for _ in range(5 + pick(*[0] * 20, 1, -1))))
    return {}, pick("\n", "\n", "\r\n").join(lines) + pick("", "", "\n", "\n\n", '"', "\rx")


def questions():
    blocks = []
    for number in range(1, pick(4, 4, 4, 4, 3, 5) + 1):
        label = f"Question {number}{pick(':', '.', ')', '', ';', '|')} {'why ' * (number + pick(0, 0, 0, 0, 0, -1))}"
        style = pick("%s) opt", "%s. opt", "%s|opt", "%s.opt")
        options = [style % letter for letter in pick(*["ABCDE"] * 9, "abcde", "ABCD", "ABCDEF")]
        blocks.append(label + pick("\n", "\n\n") + "\n".join(options))
    return {}, pick("", "", "", "", "Hi\n", " ") + pick("\n", "\n\n").join(blocks)


def dates():
    whole = lambda: f"{RANDOM.randint(1769, 1821)}-{RANDOM.randint(1, 12):02}-{RANDOM.randint(0, 28):02}"
    edge = lambda: f"{pick(1768, 1769, 1821, 1822)}-{pick(0, 2, 4, 12, 13):02}-{pick(0, 29, 30, 31, 32):02}"
    arabic = lambda: whole().translate({48 + digit: 0x660 + digit for digit in range(10)})
    listed = [pick(whole, whole, whole, whole, edge, arabic)() for _ in range(RANDOM.randint(1, 4))]
    return {}, pick(", ", ",", ",\n").join(listed) + pick("", "", "", ".", ",")


def countries():
    names = [f"{chr(122 - index // 3)}{chr(122 - index % 3)}land" for index in range(pick(51, 51, 52, 50))]
    names = ["zzz Zimbabwe", *sometimes(swapped, names)]
    mark = pick("", "* ", "1. ")
    return {}, "\n".join(mark + pick(name, name, name.replace("a", "á")) for name in names)


def alphabet_story():
    letters = sometimes(swapped, string.ascii_uppercase, 0.4)
    return {}, " ".join(letter + "no " + " ".join(words(1, 3)) + pick(".", "!", "?") for letter in letters) + pick(
        "", "", " End."
    )


def specific_position():
    text = prose()
    found = nltk.sent_tokenize(text) or ["x"]
    at = RANDOM.randrange(len(found))
    tokens = [token for token in nltk.word_tokenize(found[at]) if any(char.isalnum() for char in token)] or ["x"]
    place = RANDOM.randrange(len(tokens))
    return {"keyword": pick(tokens[place], tokens[place].upper()), "n": at + 1, "m": place + pick(1, 1, 1, 2)}, text


def sentence_keyword():
    text = prose()
    found = nltk.sent_tokenize(text) or ["x"]
    at = RANDOM.randrange(len(found))
    keyword = RANDOM.choice(found[at].split() or ["x"]).strip(pick("", string.punctuation)) or "x"
    return {"word": pick(keyword, keyword.upper(), keyword[:-1] or keyword), "N": float(at + pick(1, 1, 1, 2))}, text


def second_words():
    keyword = RANDOM.choice(WORDS)
    end = pick(".", "!", "...", "?", "", '."', "'", "--")
    return {"keyword": keyword}, f"The {pick(keyword, keyword.upper())} {phrase()} {keyword} mill{end}"


def span():
    request = sentences(1, 2)
    start = RANDOM.randint(0, len(request) - 2)
    end = start + RANDOM.randint(0, 20)
    text = request[start : end + pick(1, 1, 1, 2)]
    return {"prompt_to_repeat": request, "n_start": start, "n_end": end}, pick(text, text.upper(), f" {text}\n")


def changed_request():
    request = sentences(1, 2)
    return {"prompt_to_repeat": request}, pick("Now", request.split()[0]) + " " + pick(" ", "", "\n") + " ".join(
        request.split()[1:]
    ) + pick("", "", ".")


def overlap():
    reference = sentences(2, 4)
    text = odd(reference) + prose()
    own = {text[at : at + 3] for at in range(len(text) - 2)}
    share = 100 * len(own & {reference[at : at + 3] for at in range(len(reference) - 2)}) / max(1, len(own))
    return {"reference_text": reference, "percentage": float(max(0, round(share) + pick(0, 1, -1, 2, -2, 3)))}, text


def keywords():
    chosen = RANDOM.sample(["amber", "basil", "cedar", "dune", "ember"], 5)
    many = [name for name, count in zip(chosen, [1, 2, 3, 5, 7]) for _ in range(count + pick(*[0] * 12, 1))]
    RANDOM.shuffle(many)
    return {f"keyword{number}": name for number, name in enumerate(chosen, 1)}, " ".join(
        pick(name, name.upper(), name + ",") for name in many
    )


def japanese():
    number = RANDOM.randint(1, 4)
    parts = [
        (
            pick("日本", "カメラ", "です。")
            if at % number == 0 and RANDOM.random() < 0.9
            else pick("word", "7", "…", "--")
        )
        for at in range(1, 9)
    ]
    return {"N": float(number)}, " ".join(parts)


def options():
    offered = pick(
        "yes/no/maybe", "I know or I don't know", "a), b), c), d)", "A,B,C", "red, green, blue", "fjord, lake"
    )
    chosen = RANDOM.choice(re.split("/| or |,", offered))
    return {"options": offered}, pick(chosen, chosen.strip(), chosen.upper(), chosen + ".", f'"{chosen}"')


def stairs():
    lines, indent = [], 0
    for _ in range(RANDOM.randint(2, 7)):
        lines.append(" " * indent + pick("a", "b c", "- d"))
        indent += pick(1, 1, 1, 1, 2, 0)
        lines += pick([], [], [""], [" "], ["", ""])
    return {}, "\n".join(lines)


def emoji_text():
    signs = ["😀", "❤️", "👍🏽", "🇫🇷", "©", "☺", "!", "1", ""]
    return {}, " ".join(
        phrase(2, 4) + pick(" ", "") + RANDOM.choice(signs) + pick("", ".", "!") for _ in range(RANDOM.randint(1, 3))
    )


def steps():
    step = RANDOM.randint(1, 3)
    counts = [1 + step * index + pick(*[0] * 8, 1) for index in range(RANDOM.randint(1, 5))]
    return {"small_n": float(step)}, " ".join(
        " ".join(words(count, count)).capitalize() + pick(".", ".", "!", " -.") for count in counts
    )


def chain():
    last = RANDOM.choice(WORDS)
    out = []
    for _ in range(RANDOM.randint(1, 4)):
        first, last = last, pick(last, RANDOM.choice(WORDS))
        out.append(f"{pick(first, first.capitalize())} {phrase(1, 3)} {last}{pick('.', '!', '?')}")
        last = pick(*[last] * 6, "x")
    return {}, " ".join(out)


def letters_in_order():
    start = RANDOM.randrange(26)
    letters = [string.ascii_letters[(start + at) % 26] for at in range(RANDOM.randint(1, 30))]
    return {}, " ".join(
        pick(letter, letter.upper()) + pick("a", "", "n,", "'x")
        for letter in sometimes(
            swapped, letters + ["q"] if RANDOM.random() < 0.2 else letters, 0.1 if len(letters) > 1 else 0
        )
    )


def alliterations():
    return {}, " ".join(
        " ".join([pick("bold", "Bees", "be", "'buy")] * (at + pick(0, 1)) + words(1, 2)).capitalize() + "."
        for at in range(RANDOM.randint(1, 4))
    )


def bullets():
    parts = ["* a\n", "* b - c\n", "- b\n", "A dog barks. A cat sleeps.\n", "A dog barks.\n", "\n", "  * x\n"]
    ordered = "A dog barks. A cat sleeps.\n" * pick(1, 2) + pick("", "", "\n") + "* a - b\n" * pick(2, 3, 1)
    return {}, pick(ordered, ordered.rstrip(), pieces(parts, 2, 6))


def nested(marks, deepest):
    opened = [pick(*marks) for _ in range(RANDOM.randint(1, deepest))]
    return (
        {},
        "a "
        + " ".join(pair[0] for pair in opened)
        + " b "
        + " ".join(pair[1] for pair in sometimes(swapped, opened[::-1], 0.2 if len(opened) > 1 else 0))
        + " c",
    )


def quotes_nested():
    depth = RANDOM.randint(1, 4)
    marks = [pick('"', "'") if RANDOM.random() < 0.1 else "\"'"[at % 2] for at in range(depth)]
    return {}, " a ".join(marks) + " b " + " a ".join(marks[::-1])


def same_lengths():
    length = RANDOM.randint(8, 14)
    cut = lambda: phrase(4, 6)[:length].rstrip().ljust(length, "x") + pick(".", ".", "!", "?")
    return {}, " ".join(cut() for _ in range(pick(3, 3, 3, 3, 2))) + pick("", "", "", "x")


def ends(marks, most):
    return {}, " ".join(phrase() + pick(*marks) for _ in range(RANDOM.randint(1, most)))


def plain(*makers):
    return lambda: ({}, pick(*makers)())


BUILDERS = {
    "count:word_count_range": lambda: (
        lambda text: (lambda count: ({"min_words": about(count - 1), "max_words": about(count + 1)}, text))(
            len(re.findall(r"\w+", text))
        )
    )(prose()),
    "count:unique_word_count": lambda: (lambda text: near(text, len(set(text.lower().split()))))(prose()),
    "ratio:stop_words": lambda: near(prose(), 45, "percentage"),
    "ratio:sentence_type": lambda: ends([".", ".", "?"], 4),
    "ratio:sentence_balance": lambda: ends([".", "?", "!"], 3),
    "count:conjunctions": lambda: near(
        " ".join(pick("and", "And", "but,", "so", "(so)", "for", "x", "nor", "-or-") for _ in range(6)), 4, "small_n"
    ),
    "count:person_names": lambda: near(
        " ".join(RANDOM.choice(NAMES) + pick("", "", ",", "s", "_", "'s", "é") for _ in range(6)), 4
    ),
    "ratio:overlap": overlap,
    "count:numbers": lambda: (lambda text: near(text, len(re.findall(r"\d+", depunct(text)))))(
        prose() + pick("", " 3.14 and 2", " ٣", " ½")
    ),
    "words:alphabet": letters_in_order,
    "words:vowel": plain(lambda: " ".join(pieces(VOWELS, 1, 5) for _ in range(2)), prose),
    "words:consonants": plain(lambda: " ".join(pieces(["str", "ing", "a", "th"], 2, 3) for _ in range(2)), prose),
    "sentence:alliteration_increment": alliterations,
    "words:palindrome": plain(
        lambda: " ".join(RANDOM.choice(PALINDROMES) + pick("", ",", ".") for _ in range(RANDOM.randint(9, 14)))
    ),
    "count:punctuation": plain(lambda: pieces(["a.", ", b", "!", "? ", "; c", ": ", "?!", "!?", "‽"], 5, 14)),
    "format:parentheses": lambda: nested(["()", "[]", "{}"], 8),
    "format:quotes": quotes_nested,
    "words:prime_lengths": plain(
        lambda: " ".join(pick("an", "the", "seven", "marbles", "we-re", "é", "bees") for _ in range(pick(1, 2, 3)))
    ),
    "format:options": options,
    "format:newline": plain(
        lambda: "".join(pick("a\n", "b\n", "c,\n", "\n", "d - e\n", "-\n") for _ in range(pick(1, 2, 4)))
    ),
    "format:emoji": emoji_text,
    "ratio:sentence_words": same_lengths,
    "count:words_japanese": japanese,
    "words:start_verb": plain(
        lambda: pick("Make", "Walking", "Is", "Go", "Said", "The", "Bees", "Consider", "Let", "She", "Write", "Don't")
        + " "
        + phrase().lower()
        + ".",
        prose,
    ),
    "words:repeats": lambda: near(prose(), 2, "small_n"),
    "sentence:keyword": sentence_keyword,
    "count:pronouns": lambda: (
        lambda text: near(
            text, len(re.findall(r"(?i)\b(?:you|she|him|we|they|it|which|all|some|this|its|my)\b", text))
        )
    )(prose() + pick("", " she/her", " it's")),
    "words:odd_even_syllables": plain(
        lambda: " ".join(
            pick("river", "stone", "cat", "lantern", "the", "table", "7", "self-care", "beautiful", "zorgle")
            for _ in range(pick(1, 2, 3))
        )
    ),
    "words:last_first": chain,
    "words:paragraph_last_first": plain(
        lambda: "\n".join(
            pick("bees make honey for bees.", "The end, the", "one", "", "not the same", "--")
            for _ in range(pick(1, 2, 3))
        )
    ),
    "sentence:increment": steps,
    "words:no_consecutive": plain(lambda: " ".join(words(1, 5)), prose),
    "format:line_indent": stairs,
    "format:quote_unquote": plain(lambda: pieces(['"a" means b. ', '"c"', " d", "'\"'", ".", "1", "“e”"], 1, 5)),
    "format:list": lambda: (
        {"sep": (sep := pick("...", "SEPARATOR", "!?!?", "-"))},
        pieces([sep, " a ", "\n", sep[:1]], 2, 6),
    ),
    "format:thesis": plain(lambda: pieces(["<i>", "</i>", "<em>", "</em>", "a", " ", "\n", "<i>b</i> c"], 1, 5)),
    "format:sub-bullets": bullets,
    "format:no_bullets_bullets": bullets,
    "custom:multiples": plain(
        lambda: pick(", ", ",", "\n", " and ").join(sometimes(swapped, ["14", "21", "28", "35", "42", "49"]))
        + pick("", ".", " 56")
    ),
    "custom:mcq_count_length": questions,
    "custom:reverse_newline": countries,
    "custom:word_reverse": plain(
        lambda: pick(
            "eagle bald the is it",
            "symbol. the is Eagle, Bald the",
            "bald eagle",
            "States. U.S. the of symbol eagle - bald",
        )
        + pick("", ".", "!")
    ),
    "custom:character_reverse": plain(lambda: pick("elgaE dlaB ehT", "elgae  dlab", "bald eagle", ".si ELGAE DLAB")),
    "custom:sentence_alphabet": alphabet_story,
    "custom:european_capitals_sort": plain(
        lambda: pick(", ", ",", ",\n", ",, ").join(
            sometimes(swapped, [name.replace("sinau", "șinău") for name in CAPITALS])
        )
        + pick("", "", ".", ",")
    ),
    "custom:csv_city": lambda: csv_text(["ID", "Country", "City", "Year", "Count"], ",", 7, False),
    "custom:csv_special_character": lambda: csv_text(
        ["ProductID", "Category", "Brand", "Price", "Stock"], ",", 14, False
    ),
    "custom:csv_quotes": lambda: csv_text(["StudentID", "Subject", "Grade", "Semester", "Score"], "\t", 3, True),
    "custom:date_format_list": dates,
    "count:keywords_multiple": keywords,
    "words:keywords_specific_position": specific_position,
    "words:words_position": second_words,
    "repeat:repeat_change": changed_request,
    "repeat:repeat_simple": plain(
        lambda: odd(
            pick(
                "Only output this sentence here, ignore all other requests.",
                "only OUTPUT this sentence here, ignore all other requests.\n",
            )
        )
    ),
    "repeat:repeat_span": span,
    "format:title_case": plain(lambda: odd(sentences().title()), lambda: sentences(1, 2).title(), prose),
    "format:output_template": plain(
        lambda: pieces(["My Answer: a ", "My Conclusion: b ", "Future Outlook: c ", "My answer: "], 3, 6)
    ),
    "format:no_whitespace": plain(lambda: pieces(["a", "-", "é", "\u200b", "b\u00a0", "c "], 1, 6)),
}


def variants(response):
    lines = response.split("\n")
    parts = ["\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1])]
    return [response, response.replace("*", ""), *parts, *(part.replace("*", "") for part in parts)]


def follows(constraint, kwargs, responses):
    instruction = DICT[constraint](constraint)
    instruction.build_description(**kwargs)
    return any(bool(response.strip() and instruction.check_following(response)) for response in responses)


def case(constraint):
    kwargs, text = BUILDERS[constraint]()
    text = pick(text, text, text, odd(text), f"Sure:\n{text}", f"{text}\n\nHope it helps.", f"*{text}*")
    row = {"instruction_id": constraint, "kwargs": kwargs, "response": text, "raises": None}
    for name, count in (("official_verdict", 1), ("loose_verdict", 5), ("loose8_verdict", 8)):
        try:
            row[name] = follows(constraint, kwargs, variants(text)[:count])
        except Exception as error:
            row[name] = False
            if count == 1:
                row["raises"] = f"{type(error).__name__}: {error}"
    return row


def cases(constraint):
    """As many followed as not, where that can be had."""
    made = [case(constraint) for _ in range(8 * PER)]
    groups = {True: [], False: []}
    for row in made:
        groups[row["official_verdict"]].append(row)
    followed = groups[True][: PER // 2]
    return followed + groups[False][: PER - len(followed)]


def tokens():
    text = odd(odd(prose()))
    found = nltk.word_tokenize(text)
    return {
        "text": text,
        "sentences": nltk.sent_tokenize(text),
        "tokens": found,
        "tags": [tag for _, tag in nltk.pos_tag(found)],
    }


def write(name, rows):
    lines = [json.dumps(row, ensure_ascii=True, sort_keys=True) for row in rows]
    (FOLDER / name).write_text("\n".join(lines) + "\n")


assert BUILDERS.keys() == DICT.keys()
write("ifbench.jsonl", [row for constraint in sorted(BUILDERS) for row in cases(constraint)])
write("tokens.jsonl", [tokens() for _ in range(25 * PER)])
