#!/usr/bin/env python3
"""Makes the small data of the recipes beside this file. Not part of the build: what it made is in the
repository.

    tools/recipes/make_data.py [--text pythia-wikitext/train.txt]

  bloom-squad/train.json, dev.json   questions in the form of SQuAD v1.1, about things that people own
  mistral-alpaca/rows.json           a hundred rows in Alpaca's form
  fairseq-13b/{train,valid}.{bin,idx}, dict.txt   the words of a text, as fairseq-preprocess writes them

The questions and the rows are made of the lists below. The text is Shakespeare's (public domain).
The same lists and the same text give the same files.
"""
import argparse
import collections
import json
import pathlib
import random
import struct

HERE = pathlib.Path(__file__).parent

NAMES = "Ann Ben Carl Dora Emil Fay Gus Hal Ida Jon Kay Leo".split()
THINGS = "hat cup boat lamp coat book".split()
COLOURS = "red blue green black white brown".split()


def questions(count, seed):
    """Paragraphs of a sentence, which tells the colour that is asked for."""
    draw = random.Random(seed)
    paragraphs = []
    for number in range(count):
        owner, thing, colour = (draw.choice(words) for words in (NAMES, THINGS, COLOURS))
        begin = f"{owner} has a "
        paragraphs.append({"context": f"{begin}{colour} {thing}.", "qas": [{
            "id": f"{seed}-{number}",
            "question": f"What colour is the {thing} of {owner}?",
            "answers": [{"text": colour, "answer_start": len(begin)}]}]})
    return {"version": "1.1", "data": [{"title": "things", "paragraphs": paragraphs}]}


OPPOSITES = [("hot", "cold"), ("big", "small"), ("old", "new"), ("high", "low"), ("open", "shut"),
             ("dark", "light"), ("wet", "dry"), ("hard", "soft"), ("early", "late"), ("full", "empty")]


def alpaca_rows():
    """Instructions with and without input, of outputs of different lengths."""
    draw = random.Random(3)
    rows = []
    for one, other in OPPOSITES:
        rows.append(("Name the opposite of the word.", one, other))
        rows.append((f"What is the opposite of {other}?", "", f"The opposite of {other} is {one}."))
    for number in range(20):
        first, second = draw.randrange(2, 60), draw.randrange(2, 40)
        rows.append((f"Add {first} and {second}.", "", f"{first} + {second} = {first + second}"))
    for number in range(20):
        words = draw.sample(THINGS + COLOURS, 4)
        rows.append(("Sort the words by the alphabet.", ", ".join(words), ", ".join(sorted(words))))
    for number in range(20):
        name, thing, colour = draw.choice(NAMES), draw.choice(THINGS), draw.choice(COLOURS)
        rows.append(("Write a sentence with these words.", f"{name}, {thing}, {colour}",
                     f"{name} looked for the {thing} all day and found it under a {colour} chair."))
    for number in range(20):
        first = draw.randrange(1, 90)
        rows.append((f"Count from {first} to {first + 4}.", "",
                     ", ".join(str(n) for n in range(first, first + 5)) + "."))
    draw.shuffle(rows)
    return [dict(zip(("instruction", "input", "output"), row)) for row in rows]


def write_tokens(path, lines, ids):
    """A sentence a line with </s> (2) behind it, in 16 bits; <unk> is 3."""
    sentences = [[ids.get(word, 3) for word in line] + [2] for line in lines]
    path.with_suffix(".bin").write_bytes(
        b"".join(struct.pack(f"<{len(s)}H", *s) for s in sentences))
    pointers, place = [], 0
    for sentence in sentences:
        pointers.append(place)
        place += 2 * len(sentence)
    count = len(sentences)
    path.with_suffix(".idx").write_bytes(
        b"MMIDIDX\0\0" + struct.pack("<QBQ", 1, 8, count) +
        struct.pack(f"<{count}i", *map(len, sentences)) + struct.pack(f"<{count}q", *pointers))


def fairseq_tokens(text, folder):
    lines = [line.lower().replace(",", " ,").replace(".", " .").split() for line in text.splitlines()]
    train, valid = lines[:600], lines[600:680]
    counts = collections.Counter(word for line in train for word in line)
    kept = [word for word, count in counts.most_common(508)]
    (folder / "dict.txt").write_text("".join(f"{word} {counts[word]}\n" for word in kept))
    ids = {word: number + 4 for number, word in enumerate(kept)}
    write_tokens(folder / "train", train, ids)
    write_tokens(folder / "valid", valid, ids)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", type=pathlib.Path, default=HERE / "pythia-wikitext" / "train.txt")
    given = parser.parse_args()
    for name, count, seed in (("train", 200, 1), ("dev", 40, 2)):
        with open(HERE / "bloom-squad" / f"{name}.json", "w") as file:
            json.dump(questions(count, seed), file, indent=0)
    with open(HERE / "mistral-alpaca" / "rows.json", "w") as file:
        json.dump(alpaca_rows(), file, indent=0)
    fairseq_tokens(given.text.read_text(), HERE / "fairseq-13b")


if __name__ == "__main__":
    main()
