"""Folders by seed: the ids and texts of `fsdp tokenize` against transformers' AutoTokenizer. See made_folders.py.

Where no file of a folder names a class, AutoTokenizer raises. PreTrainedTokenizerFast is the reference then, or the
library tokenizers if only a tokenizer.json is there.
"""

import json
import random
import re
import subprocess
import time
from collections import Counter

import made_folders
import tokenizers
import transformers
from random_texts import random_text

transformers.logging.set_verbosity(transformers.logging.CRITICAL)
TEXTS = 8
PUNCTUATION = ["Hi , the . end ? yes ! ", "it 's we 're I 'm do n't they 've ' a ' b", " . . ,", "a ' s n't"]


def text_of(rng):
    if rng.random() < 0.2:
        return rng.choice(PUNCTUATION)
    if rng.random() < 0.3:  # each token between spaces
        return "x " + " y ".join(rng.sample(made_folders.CONTENTS, len(made_folders.CONTENTS)))
    return random_text(rng, made_folders.CONTENTS)


def ids_of(encoding):
    return encoding.ids if isinstance(encoding, tokenizers.Encoding) else encoding.input_ids


def vectors_of(tokenizer, rng, count=TEXTS):
    records = []
    for _ in range(count):
        text = text_of(rng)
        ids = ids_of(tokenizer(text))
        records.append({
            "text": text,
            "ids_without_special": ids_of(tokenizer(text, add_special_tokens=False)),
            "ids_with_special": ids,
            "decoded": tokenizer.decode(ids),
            "decoded_skip_special": tokenizer.decode(ids, skip_special_tokens=True),
        })  # fmt: skip
        some = [rng.randrange(len(tokenizer)) for _ in range(rng.randrange(12))]
        decoded = [tokenizer.decode(some, skip_special_tokens=skip) for skip in (False, True)]
        records.append({"ids": some, "decoded": decoded[0], "decoded_skip_special": decoded[1]})
    return records


class Alone:
    """A tokenizer.json as the library tokenizers reads it."""

    def __init__(self, folder):
        self.library = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.library.no_padding()

    def __call__(self, text, add_special_tokens=True):
        return self.library.encode(text, add_special_tokens=add_special_tokens)

    def decode(self, ids, skip_special_tokens=False):
        return self.library.decode(ids, skip_special_tokens=skip_special_tokens)

    def __len__(self):
        return self.library.get_vocab_size()


def load(folder):
    try:
        return transformers.AutoTokenizer.from_pretrained(str(folder))
    except ValueError as error:
        if not str(error).startswith("Unrecognized model"):
            raise
    if any((folder / f"{name}.json").exists() for name in ("tokenizer_config", "special_tokens_map", "added_tokens")):
        return transformers.PreTrainedTokenizerFast.from_pretrained(str(folder))
    return Alone(folder)


class Report:
    def __init__(self):
        self.agree, self.differ, self.said = Counter(), Counter(), Counter()
        self.refused, self.noted, self.silent = Counter(), Counter(), Counter()
        self.failures = []

    def print(self, seconds):
        raised = self.refused + self.noted + self.silent
        print(f"tokenizer classes: {self.agree.total()} folders agree ({2 * TEXTS} texts and lists of ids each), "
              f"{self.differ.total()} differ; transformers raises for {raised.total()}: {self.refused.total()} refused "
              f"here, {self.noted.total()} read with a note, {self.silent.total()} without a word; {seconds:.0f} s")  # fmt: skip
        for name in sorted(self.agree + self.differ):
            print(f"  {name}: {self.agree[name]} agree, {self.differ[name]} differ")
        for kind, reasons in (("noted", self.noted), ("silent", self.silent)):
            for reason, count in reasons.most_common(12):
                print(f"  {kind}, {count}: {reason}")
        for seed, said in self.failures[:8]:
            print(f"seed {seed}: {said[:700]}")


def expect(seed, folder):
    """Makes the folder of a seed and what transformers makes of it, in vectors.json. Returns its class, its error."""
    rng = random.Random(f"folder {seed}")
    made_folders.make(rng, folder)
    try:
        tokenizer = load(folder)
        (folder / "vectors.json").write_text(json.dumps(vectors_of(tokenizer, rng)))
        return type(tokenizer).__name__, None
    except Exception as raised:
        return None, re.sub(r"/\S*", "PATH", f"{type(raised).__name__}: {raised}".splitlines()[0])[:110]


def compare(fsdp, seed, folder, name, error, report):
    command = [str(fsdp), "tokenize", "--tokenizer", str(folder)]
    command += ["a"] if error else ["--verify", str(folder / "vectors.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    said = done.stdout + done.stderr
    if error:
        counter = report.refused if done.returncode else report.noted if "note: " in said else report.silent
        counter[error] += 1
        if counter is report.silent:
            report.failures.append((seed, f"transformers raises, nothing is said here: {error}"))
    elif done.returncode == 0:
        report.agree[name] += 1
    else:
        report.differ[name] += 1
        report.failures.append((seed, f"{name}: {said}"))


def check_seeds(fsdp, seeds, scratch):
    """Returns how many failed and how many were compared."""
    begin, report = time.time(), Report()
    for seed in seeds:
        name, error = expect(seed, scratch / str(seed))
        compare(fsdp, seed, scratch / str(seed), name, error, report)
    report.print(time.time() - begin)
    return len(report.failures), report.agree.total() + report.differ.total() + report.refused.total() + report.noted.total()
