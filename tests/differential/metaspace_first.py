"""Writes tests/fixtures/tokenizers/metaspace_first.json: where the pre-tokenizer Metaspace with the scheme "first" puts a
blank when a stage before it has changed or cut the beginning of a text.

    python3 tests/differential/metaspace_first.py tests/fixtures/tokenizers/metaspace_first.json
"""

import json
import sys

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

TEXTS = ["ab", "  ab a", "e2x", "\u00e9a", "e\u0301a", "\u0958b", "\u0130b", "7a"]
ALPHABET = sorted(set("".join(TEXTS)) | set("\u2581y\u0302\u0307\u0308\u0915\u093ci"))
NORMALIZERS = [
    [], [normalizers.Strip(True, False)], [normalizers.Strip(False, True)],
    [normalizers.Replace("e2", "y")], [normalizers.Replace("a", "")], [normalizers.Replace("a", "yy")],
    [normalizers.Replace(Regex(r"\s+"), "x")], [normalizers.Replace(Regex("b*"), "y")],
    [normalizers.Prepend("x")], [normalizers.Prepend("xe")], [normalizers.Prepend("\u2581")],
    [normalizers.Strip(True, True), normalizers.Prepend("x")], [normalizers.Prepend("xe"), normalizers.Replace("e", "")],
    [normalizers.Prepend("x"), normalizers.Strip(True, True)],
    [normalizers.NFD()], [normalizers.NFC()], [normalizers.NFKD()], [normalizers.NFKC()], [normalizers.Lowercase()],
    [normalizers.NFD(), normalizers.Prepend("e"), normalizers.NFC()],
]  # fmt: skip
CUTS = [
    [], [pre_tokenizers.Split(Regex(r"\p{L}"), "isolated")], [pre_tokenizers.Split("a", "removed")],
    [pre_tokenizers.Metaspace(prepend_scheme="always"), pre_tokenizers.Split("a", "isolated")],
]  # fmt: skip


def tokenizer_of(steps, cuts, added):
    tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate(ALPHABET)}, []))
    if steps:
        tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*cuts, pre_tokenizers.Metaspace(prepend_scheme="first")])
    if added:
        tokenizer.add_tokens([AddedToken("x", normalized=True), AddedToken("7", normalized=False)])
    return tokenizer


def main():
    base = json.loads(tokenizer_of([], [], False).to_str())
    cases = []
    for steps in NORMALIZERS:
        for cuts in CUTS:
            for added in [False, True] if not cuts else [False]:
                tokenizer = tokenizer_of(steps, cuts, added)
                file = json.loads(tokenizer.to_str())
                changed = {key: value for key, value in file.items() if value != base[key]}
                cases.append({"changed": changed, "ids": [tokenizer.encode(text).ids for text in TEXTS]})
    with open(sys.argv[1], "w") as file:
        made_by = f"tokenizers {tokenizers.__version__}"
        json.dump({"made_by": made_by, "file": base, "texts": TEXTS, "cases": cases}, file, separators=(",", ":"))


if __name__ == "__main__":
    main()
