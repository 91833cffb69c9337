"""Texts and lists of ids by seed: what `fsdp tokenize --verify` makes of them against Hugging Face's tokenizers.

Every seed gives each published kind of tokenizer (tests/fixtures/tokenizers, and the real vocabularies of
../shared/data/tokenizers where they are there) TEXTS texts, and draws one tokenizer of its own (made_tokenizers.py).
"""

import json
import random
import re
import subprocess
import time
from collections import Counter
from pathlib import Path

import made_tokenizers
from random_texts import random_text
from tokenizers import Tokenizer

TEXTS = 25  # of a tokenizer and seed: 2500 in 100 seeds
TESTS = Path(__file__).parent.parent
SHARED = TESTS.parent.parent / "shared" / "data" / "tokenizers"


def published():
    return sorted((TESTS / "fixtures" / "tokenizers").glob("*/tokenizer.json")) + sorted(SHARED.glob("*.json"))


def name_of(file):
    return file.parent.name if file.name == "tokenizer.json" else file.stem


def vectors_of(tokenizer, rng):
    """The library's results for texts, and for ids that no text gave."""
    specials = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
    vocabulary = tokenizer.get_vocab_size()
    texts, ids = [], []
    for _ in range(TEXTS):
        text = random_text(rng, specials)
        with_special = tokenizer.encode(text).ids
        texts.append({
            "text": text,
            "ids_without_special": tokenizer.encode(text, add_special_tokens=False).ids,
            "ids_with_special": with_special,
            "decoded": tokenizer.decode(with_special, skip_special_tokens=False),
            "decoded_skip_special": tokenizer.decode(with_special),
        })  # fmt: skip
        some = [rng.randrange(vocabulary) for _ in range(rng.randrange(12))]
        ids.append({
            "ids": some,
            "decoded": tokenizer.decode(some, skip_special_tokens=False),
            "decoded_skip_special": tokenizer.decode(some),
        })  # fmt: skip
    return texts, ids


class Report:
    def __init__(self):
        self.texts, self.differences = Counter(), Counter()  # by name of the tokenizer
        self.refused, self.not_computed = Counter(), Counter()  # by reason
        self.failures = []  # (seeds, what was said)

    def print(self, seconds):
        print(f"tokenizers: {self.texts.total()} texts and as many lists of ids, {self.differences.total()} "
              f"differences, {self.refused.total()} tokenizers refused by name, {self.not_computed.total()} not computed "
              f"by the library itself; {seconds:.0f} s")  # fmt: skip
        for name, count in self.texts.items():
            print(f"  {name}: {count} texts, {self.differences[name]} differences")
        for reason, count in (self.refused + self.not_computed).most_common():
            print(f"  {count} {reason}")
        for seeds, said in sorted(self.failures, key=lambda failure: len(failure[1]))[:5]:
            print(f"of seeds {sorted(seeds)}:\n{said[:1500]}")


def compare(fsdp, name, file, seeds, where, report):
    """Of all seeds at once: reading a vocabulary takes longer than a text."""
    tokenizer = Tokenizer.from_file(str(file))
    tokenizer.no_truncation()  # what a file says of them, transformers sets anew
    tokenizer.no_padding()
    try:
        parts = [vectors_of(tokenizer, random.Random(f"{name} {seed}")) for seed in seeds]
    except BaseException as error:  # the library panics on some texts: a type without a name to import
        if name != "made" or type(error).__name__ != "PanicException":
            raise
        report.not_computed[str(error)] += 1
        return
    where.mkdir(parents=True, exist_ok=True)
    command = [str(fsdp), "tokenize", "--tokenizer", str(file)]
    for kind, records in (("texts", [r for texts, _ in parts for r in texts]), ("ids", [r for _, i in parts for r in i])):
        (where / f"{kind}.json").write_text(json.dumps(records))
        command += ["--verify", str(where / f"{kind}.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    said = (done.stderr + done.stdout).strip()
    counts = [int(n) for n in re.findall(r": \d+ cases, (\d+) differences$", done.stdout, re.M)]
    if len(counts) == 2:
        report.texts[name] += len(seeds) * TEXTS
        report.differences[name] += sum(counts)
        if sum(counts):
            wrong = {seeds[int(index) // TEXTS] for index in re.findall(r"\.json: \[(\d+)\]: ", said)}
            report.failures.append((wrong, said))
    elif name == "made" and made_tokenizers.may_refuse(said):
        report.refused[re.sub(r"^.*?\.json: ", "", said)[:110]] += 1
    else:
        report.failures.append((set(seeds), said))


def check_seeds(fsdp, seeds, scratch):
    """Returns how many failed, and of how many the tokenizer that is drawn was compared."""
    begin, report = time.time(), Report()
    for file in published():
        compare(fsdp, name_of(file), file, seeds, scratch / name_of(file), report)
    for seed in seeds:
        folder = scratch / "made" / str(seed)
        file = made_tokenizers.make(random.Random(f"made {seed}"), folder)
        compare(fsdp, "made", file, [seed], folder, report)
    report.print(time.time() - begin)
    return len(set().union(*(seeds for seeds, _ in report.failures))), report.texts["made"] // TEXTS
