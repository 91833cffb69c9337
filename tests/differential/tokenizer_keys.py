"""Writes tests/fixtures/tokenizers/keys.json: every component of Hugging Face's tokenizers with all keys that it writes.

    python3 tests/differential/tokenizer_keys.py tests/fixtures/tokenizers/keys.json
"""

import json
import sys

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

OF_CONSTRUCTORS = {
    "BertNormalizer": (), "Prepend": ("▁",), "Replace": (Regex("a+"), "b"),
    "CharDelimiterSplit": ("x",), "FixedLength": (3,), "Split": (" ", "removed"),
    "BertProcessing": (("a", 0), ("b", 1)), "RobertaProcessing": (("a", 0), ("b", 1)),
    "BPE": ({"a": 0, "b": 1, "ab": 2, "<s>": 3}, [("a", "b")]), "WordLevel": ({"a": 0}, "a"), "models.WordPiece": ({"a": 0},),
    "Unigram": ([("a", 0.0)],),
}  # fmt: skip
NOT_COMPONENTS = {"Normalizer", "PreTokenizer", "Decoder", "PostProcessor", "Model", "DecodeStream"}
NEEDS_A_BLOB = {"Precompiled"}  # a table of SentencePiece


def written(component):
    return json.loads(component.__getstate__())


def components(module):
    """One of each class of a module."""
    out = []
    for name in sorted(dir(module)):
        kind = getattr(module, name)
        if not isinstance(kind, type) or name in NOT_COMPONENTS or kind.__module__ != module.__name__:
            continue
        if name in NEEDS_A_BLOB:
            out.append({"type": name})
        elif name == "Sequence":
            first = "NFC" if module is normalizers else "ByteLevel"
            out.append(written(kind([getattr(module, first)()])))
        elif name == "TemplateProcessing":
            out.append(written(kind(single="<s> $A", pair="$A $B", special_tokens=[("<s>", 3)])))
        else:
            place = module.__name__.split(".")[-1]
            arguments = OF_CONSTRUCTORS.get(f"{place}.{name}", OF_CONSTRUCTORS.get(name, ()))
            out.append(written(kind(*arguments)))
    return out


def whole_file():
    tokenizer = Tokenizer(models.BPE(*OF_CONSTRUCTORS["BPE"]))
    tokenizer.add_special_tokens([AddedToken("<s>")])
    return json.loads(tokenizer.to_str())


def main():
    records = {
        "made_by": f"tokenizers {tokenizers.__version__}",
        "file": whole_file(),
        "model": components(models),
        "normalizer": components(normalizers),
        "pre_tokenizer": components(pre_tokenizers),
        "post_processor": components(processors),
        "decoder": components(decoders),
    }
    with open(sys.argv[1], "w") as file:
        json.dump(records, file, ensure_ascii=False, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main()
