"""Makes the tables of this folder from the data that the original libraries carry.

    python make_tables.py NLTK_DATA

NLTK_DATA is a folder with `tokenizers/punkt_tab`, `taggers/averaged_perceptron_tagger_eng` and
`corpora/stopwords`; the packages `emoji` and `syllapy` must be installed.
"""

import importlib.resources
import json
import pathlib
import sys
import unicodedata

import emoji

HERE = pathlib.Path(__file__).parent


def varint(number):
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def tagger(folder):
    """Tags, words with one tag, then features in order of bytes, each without what it shares with the one before.

    Weights have three decimals, so a whole number of thousandths is exact.
    """
    load = lambda part: json.loads((folder / f"averaged_perceptron_tagger_eng.{part}.json").read_text())
    tags, known, weights = sorted(load("classes")), load("tagdict"), load("weights")
    out = [varint(len(tags))]
    for tag in tags:
        out.append(varint(len(tag)) + tag.encode())
    out.append(varint(len(known)))
    for word in sorted(known, key=str.encode):
        out.append(varint(len(word.encode())) + word.encode() + varint(tags.index(known[word])))
    out.append(varint(len(weights)))
    before = b""
    for name in sorted(weights, key=str.encode):
        raw = name.encode()
        shared = 0
        while shared < min(len(raw), len(before)) and raw[shared] == before[shared]:
            shared += 1
        out.append(varint(shared) + varint(len(raw) - shared) + raw[shared:] + varint(len(weights[name])))
        for tag, weight in weights[name].items():
            whole = round(weight * 1000)
            assert whole / 1000 == weight
            out.append(varint(tags.index(tag)) + varint(whole * 2 if whole >= 0 else -whole * 2 - 1))
        before = raw
    (HERE / "tagger.bin").write_bytes(b"".join(out))


def punkt(folder):
    for name in ("abbrev_types.txt", "collocations.tab", "ortho_context.tab", "sent_starters.txt"):
        lines = (folder / name).read_text().splitlines()
        (HERE / f"punkt_{name}").write_text("\n".join(sorted(lines)) + "\n")


def emojis():
    points = sorted(ord(text) for text in emoji.EMOJI_DATA if len(text) == 1)
    runs = []
    for point in points:
        if runs and runs[-1][1] == point - 1:
            runs[-1][1] = point
        else:
            runs.append([point, point])
    (HERE / "emoji.txt").write_text("".join(f"{first:x} {last:x}\n" for first, last in runs))


def ascii_of_characters():
    """What is left in ASCII of a character's compatibility decomposition, where something is."""
    lines = []
    for point in range(128, 0x110000):
        if not 0xD800 <= point < 0xE000:
            left = unicodedata.normalize("NFKD", chr(point)).encode("ascii", "ignore").decode()
            if left:
                assert "\n" not in left
                lines.append(f"{point:x} {left}\n")
    (HERE / "ascii.txt").write_text("".join(lines))


def main():
    data = pathlib.Path(sys.argv[1])
    tagger(data / "taggers/averaged_perceptron_tagger_eng")
    punkt(data / "tokenizers/punkt_tab/english")
    words = (data / "corpora/stopwords/english").read_text().split()
    (HERE / "stopwords.txt").write_text("\n".join(words) + "\n")
    table = importlib.resources.files("syllapy").joinpath("data.csv").read_text().splitlines()
    (HERE / "syllables.csv").write_text("\n".join(table) + "\n")
    emojis()
    ascii_of_characters()


main()
