"""Writes tests/fixtures/tokenizers/token_bytes.json: which characters of a text each token comes from, as the library says
(Encoding.offsets), for the tokenizers beside it and for small ones with one component each.

    python3 tests/differential/token_bytes.py tests/fixtures/tokenizers/token_bytes.json

Left out: post-processors (ByteLevel there takes spaces off the offsets), and texts with an unknown token of a tokenizer with
byte fallback, around which the library counts other characters than those that the tokens stand for.
"""

import json
import sys
import unicodedata
from pathlib import Path

import tokenizers
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

FOLDER = Path(__file__).parent.parent / "fixtures" / "tokenizers"
TEXTS = [
    "", " ", "Hello world", "  two  spaces\n\n", "caf\u00e9 na\u00efve", "cafe\u0301 e\u0323\u0302x \u1e9b\u0323",
    "\U0001f600\U0001f44d\U0001f3fd!\U0001f468\u200d\U0001f469\u200d\U0001f467", "\u4f60\u597d\uff0c\u4e16\u754c",
    "\u041f\u0440\u0438\u0432\u0435\u0442 \u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627 \u0939\u093f\u0928\u094d\u0926\u0940",
    "\ud55c\uae00 \u1112\u1161\u11ab", "a\r\nb\r\n\r\n", "<|im_start|>user\nHi there<|im_end|>\n", "<s>[INST] Hi [/INST] 42</s> x",
    "a<|endoftext|>b", "\ufffd\u0000\u007f\u0080\uffff\U0010ffff", "\u2581blank\u2581", "if (x[1]==3.14) { return 'it\\'s'; }",
    "\tTabs\u00a0and\u3000wide\u200b", "I'LL 1234567", "\u0130stanbul \u03a3\u0391\u03a3",
]  # fmt: skip
SHORT = [text for text in TEXTS if len(text) < 13]
FORMS = [unicodedata.normalize(form, text) for form in ("NFC", "NFD", "NFKC") for text in SHORT]
ALPHABET = sorted(set("".join([*SHORT, *FORMS, *(text.lower() for text in SHORT)])) | set("\u2581\u03c3yx"))
ONE = {
    "NFD": normalizers.NFD(), "NFKC": normalizers.NFKC(), "Lowercase": normalizers.Lowercase(),
    "Strip": normalizers.Strip(True, True), "Prepend": normalizers.Prepend("\u2581"),
    "Replace": normalizers.Replace(" ", "\u2581"), "Replace by nothing": normalizers.Replace("l", ""),
    "Removed": pre_tokenizers.Split("o", "removed"), "MergedWithNext": pre_tokenizers.Split("o", "merged_with_next"),
    "WhitespaceSplit": pre_tokenizers.WhitespaceSplit(), "Digits": pre_tokenizers.Digits(True),
    "Metaspace": pre_tokenizers.Metaspace(prepend_scheme="always"),
    "words with a prefix": pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]),
}  # fmt: skip


def offsets(tokenizer, text, unknown):
    encoding = tokenizer.encode(text, add_special_tokens=False)
    return None if unknown in encoding.tokens else [place for span in encoding.offsets for place in span]


def small(component):
    tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate(ALPHABET)}, []))
    if isinstance(component, normalizers.Normalizer):
        tokenizer.normalizer = component
    else:
        tokenizer.pre_tokenizer = component
    return tokenizer


def main():
    out = {"made_by": f"tokenizers {tokenizers.__version__}", "texts": TEXTS, "folders": {}, "components": []}
    for file in sorted(FOLDER.glob("*/tokenizer.json")):
        config = json.loads(file.read_text())
        config["post_processor"] = None
        tokenizer = Tokenizer.from_str(json.dumps(config))
        unknown = config["model"]["unk_token"] if config["model"].get("byte_fallback") else None
        out["folders"][file.parent.name] = [offsets(tokenizer, text, unknown) for text in TEXTS]
    for name, component in ONE.items():
        tokenizer = small(component)
        config = json.loads(tokenizer.to_str())
        changed = {key: config[key] for key in ("normalizer", "pre_tokenizer") if config[key]}
        cases = [[text, offsets(tokenizer, text, None)] for text in SHORT]
        out["components"].append({"name": name, "changed": changed, "cases": cases})
    out["file"] = json.loads(Tokenizer(models.BPE({c: i for i, c in enumerate(ALPHABET)}, [])).to_str())
    with open(sys.argv[1], "w") as file:
        json.dump(out, file, separators=(",", ":"))


if __name__ == "__main__":
    main()
