"""A tokenizer.json of random components around a small BPE vocabulary, as the library itself saves it."""

import json
import re

from random_texts import ASCII, random_text
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

PATTERNS = [r"\s+", r"\p{N}{1,3}", r"[^\r\n\p{L}\p{N}]?\p{L}+", r"'(?i:[sdmt]|ll|ve|re)", r"\s+(?!\S)|\s+", "[aeiou]+"]
BEHAVIORS = ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]


def pattern(rng):
    return Regex(rng.choice(PATTERNS)) if rng.random() < 0.7 else rng.choice([" ", "a", "e2", "\n", "▁"])


def normalizer(rng):
    return rng.choice([
        normalizers.NFC, normalizers.NFD, normalizers.NFKC, normalizers.NFKD, normalizers.Lowercase,
        lambda: normalizers.Strip(rng.random() < 0.5, rng.random() < 0.5),
        lambda: normalizers.Prepend(rng.choice(["▁", "x"])),
        lambda: normalizers.Replace(pattern(rng), rng.choice(["", "▁", "y", "ab"])),
    ])()  # fmt: skip


def pre_tokenizer(rng):
    scheme = rng.choice(["always", "first", "never"])
    return rng.choice([
        pre_tokenizers.Whitespace, pre_tokenizers.WhitespaceSplit,
        lambda: pre_tokenizers.Digits(individual_digits=rng.random() < 0.5),
        lambda: pre_tokenizers.Punctuation(rng.choice(BEHAVIORS)),
        lambda: pre_tokenizers.Split(pattern(rng), rng.choice(BEHAVIORS), invert=rng.random() < 0.3),
        lambda: pre_tokenizers.Metaspace(prepend_scheme=scheme, split=rng.random() < 0.5),
    ])()  # fmt: skip


def some(rng, make, most):
    return [make(rng) for _ in range(rng.randrange(most + 1))]


def decoder(rng, byte_level):
    if byte_level:
        return decoders.ByteLevel()
    return rng.choice([
        decoders.Metaspace(), decoders.Fuse(),
        decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]),
    ])  # fmt: skip


def trained(rng, byte_level):
    unknown = None if byte_level or rng.random() < 0.3 else "<unk>"
    fallback = not byte_level and rng.random() < 0.5
    tokenizer = Tokenizer(models.BPE(unk_token=unknown, fuse_unk=rng.random() < 0.5, byte_fallback=fallback))
    specials = [unknown] if unknown else []
    if fallback:
        specials += [f"<0x{byte:02X}>" for byte in range(256)]
    alphabet = pre_tokenizers.ByteLevel.alphabet() if byte_level else list(ASCII + "▁é")
    trainer = trainers.BpeTrainer(vocab_size=600 + len(specials), special_tokens=specials, initial_alphabet=alphabet,
                                  show_progress=False)  # fmt: skip
    if byte_level:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train_from_iterator((random_text(rng, []) for _ in range(150)), trainer)
    return tokenizer


def make(rng, folder):
    byte_level = rng.random() < 0.5
    tokenizer = trained(rng, byte_level)
    if steps := some(rng, normalizer, 3):
        tokenizer.normalizer = normalizers.Sequence(steps)
    steps = some(rng, pre_tokenizer, 2)
    if byte_level:
        steps.append(pre_tokenizers.ByteLevel(add_prefix_space=rng.random() < 0.5, use_regex=rng.random() < 0.7))
    if steps:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoder(rng, byte_level)
    for content in rng.sample(["<|x|>", "two words", "Ab", "<s>", "</s>", " é", "ing"], rng.randrange(5)):
        flags = {name: rng.random() < 0.3 for name in ("single_word", "lstrip", "rstrip", "normalized", "special")}
        tokenizer.add_tokens([AddedToken(content, **flags)])
    begin = tokenizer.token_to_id("<s>")
    if begin is not None and rng.random() < 0.7:
        frame = rng.choice(["<s> $A", "<s> $A <s>", "$A <s>"])
        tokenizer.post_processor = processors.TemplateProcessing(single=frame, special_tokens=[("<s>", begin)])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    clean(folder / "tokenizer.json")
    return folder / "tokenizer.json"


def clean(file):
    """The training's special tokens are no added tokens of a published tokenizer with byte fallback."""
    config = json.loads(file.read_text())
    config["added_tokens"] = [t for t in config["added_tokens"] if not re.fullmatch("<0x..>", t["content"])]
    file.write_text(json.dumps(config))


def may_refuse(said):
    """Refusals by name that are no failure."""
    return "is not supported" in said
