"""Asks Hugging Face's tokenizers library which Unicode its normalizers and Punctuation know, about every code point.

    python3 tests/differential/unicode_tables.py            prints the tables of tools/data/tokenizer/unicode_form.cpp
                                                            and the punctuation of tools/data/tokenizer/characters.cpp
    python3 tests/differential/unicode_tables.py FILE.json  writes tests/fixtures/tokenizers/normalizers.json

Needs tokenizers, unicodedata2 (the newest Unicode) and xxhash from PyPI.
"""

import json
import sys

import tokenizers
import unicodedata2 as newest
import xxhash
from tokenizers import normalizers, pre_tokenizers

NAMES = ["NFC", "NFD", "NFKC", "NFKD", "Lowercase"]
LIBRARY = {name: getattr(normalizers, name)().normalize_str for name in NAMES}
CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
BLOCK = 0x4000  # code points a checksum
HANGUL = set(range(0x1100, 0x1200)) | set(range(0xAC00, 0xD7A4))


def lines_of(code_point):
    """A code point alone; after and before marks of the highest and the lowest class; between letter and accent."""
    c = chr(code_point)
    return [c, "\u0345" + c, c + "\u0334", "e" + c + "\u0301"]


# ---------------------------------------------------------------- tables


def pairs_of_newest():
    """(first, second) of every character that the newest Unicode composes."""
    for c in CODE_POINTS:
        parts = newest.decomposition(chr(c)).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            pair = [int(part, 16) for part in parts]
            if newest.normalize("NFC", "".join(map(chr, pair))) == chr(c):
                yield pair


def ordered_by_library(c):
    """Whether it has a combining class: one of these marks changes places with it."""
    if newest.combining(chr(c)) == 240:
        return LIBRARY["NFD"](chr(c) + "\u0334") != chr(c) + "\u0334"
    return LIBRARY["NFD"]("\u0345" + chr(c)) != "\u0345" + chr(c)


def nothing_happens(c):
    return LIBRARY["NFKD"](chr(c)) == chr(c) and not ordered_by_library(c)


def unknown_ranges():
    composed, unknown = set(HANGUL), set()
    for pair in pairs_of_newest():
        text = "".join(map(chr, pair))
        if LIBRARY["NFC"](text) != text:
            composed.update(pair)
        else:
            unknown.update(pair)
    for c in CODE_POINTS:
        if (newest.combining(chr(c)) or newest.normalize("NFKD", chr(c)) != chr(c)) and nothing_happens(c):
            unknown.add(c)
    ranges = []
    for c in sorted(unknown - composed):
        between = range(ranges[-1][1] + 1, c) if ranges else []
        mergeable = all(not 0xD800 <= x < 0xE000 and x not in composed and nothing_happens(x) for x in between)
        if ranges and mergeable:
            ranges[-1][1] = c
        else:
            ranges.append([c, c])
    return ranges


def capital_ranges():
    """Those that Python's own, older Unicode does not know."""
    ranges = []
    for c in CODE_POINTS:
        small = LIBRARY["Lowercase"](chr(c))
        if small == chr(c).lower():
            continue
        offset = ord(small) - c
        if ranges and ranges[-1][1] == c - 1 and ranges[-1][2] == offset and offset != 1:
            ranges[-1][1] = c
        else:
            ranges.append([c, c, offset])
    return ranges


def punctuation_ranges():
    """What is punctuation to the newest Unicode only, in as few ranges as possible; what is to the library only."""
    split = pre_tokenizers.Punctuation("isolated").pre_tokenize_str
    library = {c for c in CODE_POINTS if len(split(f"a{chr(c)}b")) == 3}
    now = {c for c in CODE_POINTS if newest.category(chr(c))[0] == "P"}
    ranges = []
    for c in sorted(now - library):
        if ranges and library.isdisjoint(range(ranges[-1][1], c)):
            ranges[-1][1] = c
        else:
            ranges.append([c, c])
    return ranges, sorted(c for c in library - now if c >= 0x80)


# ---------------------------------------------------------------- fixture


def checksums(name):
    out = []
    for begin in range(0, 0x110000, BLOCK):
        lines = [line for c in range(begin, begin + BLOCK) if not 0xD800 <= c < 0xE000 for line in lines_of(c)]
        text = "".join(LIBRARY[name](line) + "\n" for line in lines)
        out.append(f"{xxhash.xxh3_64_intdigest(text.encode()):016x}")
    return out


def texts():
    """What the newest Unicode composes and Unicode 9 does not, and marks out of order."""
    pairs = ["".join(map(chr, pair)) for pair in pairs_of_newest()]
    new = [text for text in pairs if LIBRARY["NFC"](text) == text]
    marks = ["\u0301\u0eba", "a\u0301\u0eba\u0323", "\U00010d27\u0334", "\u1ac0\u0301\u0323", "\uac00\u11a7\u11a8"]
    return new + [text + "\u0301" for text in new] + marks


def write_fixture(path):
    records = {
        "made_by": f"tokenizers {tokenizers.__version__}",
        "block": BLOCK,
        "checksums": {name: checksums(name) for name in NAMES},
        "texts": [{"input": text} | {name: LIBRARY[name](text) for name in NAMES} for text in texts()],
    }
    with open(path, "w") as file:
        json.dump(records, file, separators=(",", ":"))


def main():
    if len(sys.argv) > 1:
        write_fixture(sys.argv[1])
        return
    print(f"tokenizers {tokenizers.__version__} against Unicode {newest.unidata_version}")
    print("kUnknown: " + ", ".join(f"{{0x{first:x}, 0x{last:x}}}" for first, last in unknown_ranges()))
    recent, former = punctuation_ranges()
    print("kRecentPunctuation: " + ", ".join(f"{{0x{first:x}, 0x{last:x}}}" for first, last in recent))
    print("kFormerPunctuation: " + ", ".join(hex(c) for c in former))
    print("kRecentCapitals: " + ", ".join(f"{{0x{a:x}, 0x{b:x}, {offset}}}" for a, b, offset in capital_ranges()))


if __name__ == "__main__":
    main()
