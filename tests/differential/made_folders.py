"""Folders with a small tokenizer.json and, each by chance, the files and keys beside it that transformers reads."""

import json

from random_texts import random_text
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

CLASSES = ["PreTrainedTokenizer", "LlamaTokenizer", "CodeLlamaTokenizer", "GemmaTokenizer", "CohereTokenizer",
           "GPTNeoXTokenizer", "GPT2Tokenizer", "CodeGenTokenizer", "Qwen2Tokenizer", "BloomTokenizer"]  # fmt: skip
MODEL_TYPES = ["llama", "mistral", "code_llama", "gemma2", "cohere", "gpt_neox", "gpt2", "opt", "phi", "qwen2", "bloom", "falcon"]
CONTENTS = ["<s>", "</s>", "<unk>", "<pad>", "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<bos>", "<eos>", "[PAD]", "<mask>",
            "the", "ing", "Ab", "two words", "<|new|>", "\u2581<PRE>", "é", "hello", "ÉT"]  # fmt: skip
NAMES = ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"]
WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+(?!\S)|\s+"
BYTE_FALLBACK = decoders.Sequence(
    [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
)


def flags(rng):
    return {name: rng.random() < 0.3 for name in ("single_word", "lstrip", "rstrip", "normalized", "special")}


def plain(rng):
    """As nearly all published tokens are."""
    return {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": rng.random() < 0.8}


def options(rng):
    return plain(rng) if rng.random() < 0.5 else flags(rng)


# ---- the tokenizer.json


def vocabulary(rng, byte_level, in_vocabulary):
    fallback = [] if byte_level else [f"<0x{byte:02X}>" for byte in range(256)]
    specials = [] if byte_level else ["<unk>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet() if byte_level else list("▁abcdefghijklmnopqrstuvwxyzABCé0123.,'")
    tokenizer = Tokenizer(models.BPE(unk_token=specials[0] if specials else None, fuse_unk=True, byte_fallback=not byte_level))
    trainer = trainers.BpeTrainer(vocab_size=len(fallback) + 420, special_tokens=specials + fallback + in_vocabulary,
                                  initial_alphabet=alphabet, show_progress=False)  # fmt: skip
    if byte_level:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train_from_iterator((random_text(rng, []) for _ in range(60)), trainer)
    return tokenizer


def stages(rng, tokenizer, kind):
    if kind == "byte_level":
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=rng.random() < 0.5)
    elif kind == "sequence":
        split = pre_tokenizers.Split(Regex(WORDS), "isolated")
        level = pre_tokenizers.ByteLevel(add_prefix_space=rng.random() < 0.3, use_regex=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, level])
    elif kind == "llama":
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        tokenizer.pre_tokenizer = None
    elif kind == "metaspace":
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=rng.choice(["first", "always", "never"]), split=False)
    if kind in ("byte_level", "sequence"):
        tokenizer.normalizer = rng.choice([None, None, normalizers.NFC(), normalizers.Lowercase()])
        tokenizer.decoder = decoders.ByteLevel()
    else:
        tokenizer.decoder = BYTE_FALLBACK


def post_processor(rng, tokenizer):
    """Of the tokens that are there."""
    known = [c for c in CONTENTS[:8] if tokenizer.token_to_id(c) is not None]
    if known and rng.random() < 0.5:
        first, last = rng.choice(known), rng.choice(known)
        single = rng.choice([f"{first} $A", f"{first} $A {last}", f"$A {last}"])
        tokenizer.post_processor = processors.TemplateProcessing(
            single=single, special_tokens=[(c, tokenizer.token_to_id(c)) for c in {first, last}]
        )
    elif rng.random() < 0.4:
        tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)


def tokenizer_json(rng, folder):
    kind = rng.choice(["byte_level", "byte_level", "sequence", "llama", "metaspace"])
    in_vocabulary = rng.sample([c for c in CONTENTS[:8] if c != "<unk>"], rng.randrange(5))
    tokenizer = vocabulary(rng, kind in ("byte_level", "sequence"), in_vocabulary)
    stages(rng, tokenizer, kind)
    for content in in_vocabulary + rng.sample(CONTENTS, rng.randrange(5)):
        tokenizer.add_tokens([AddedToken(content, **options(rng))])
    post_processor(rng, tokenizer)
    tokenizer.save(str(folder / "tokenizer.json"))
    data = json.loads((folder / "tokenizer.json").read_text())
    # The training's special tokens are no added tokens of a published tokenizer with byte fallback.
    data["added_tokens"] = [t for t in data["added_tokens"] if not t["content"].startswith("<0x")]
    if rng.random() < 0.1:
        data["padding"] = {"strategy": "BatchLongest", "direction": "Right", "pad_to_multiple_of": None, "pad_id": 1,
                           "pad_type_id": 0, "pad_token": rng.choice(CONTENTS[:8])}  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(data))
    return data, len(data["model"]["vocab"])


# ---- the files beside it


def named(rng, marked):
    """The value of a key that names a token."""
    content = rng.choice(CONTENTS)
    if rng.random() < 0.6:
        return content
    value = {"content": content, **options(rng)}
    if rng.random() < 0.3:
        del value["normalized"]
    if marked:
        return {"__type": "AddedToken", **value}
    del value["special"]
    return value


def maybe(rng, keys, name, chance, value):
    if rng.random() < chance:
        keys[name] = value() if callable(value) else value


def added_tokens_decoder(rng, tokenizer, size):
    out = {}
    for token in tokenizer["added_tokens"]:
        if rng.random() < 0.8:
            same = {k: v for k, v in token.items() if k != "id"}
            out[str(token["id"])] = same if rng.random() < 0.7 else {"content": token["content"], **options(rng)}
    for content in rng.sample(CONTENTS, rng.randrange(4)):
        value = {"content": content, **options(rng)}
        if rng.random() < 0.2:
            del value["normalized"]
        out[str(size + rng.randrange(30))] = value
    return dict(rng.sample(list(out.items()), len(out)))


def tokenizer_config(rng, tokenizer, size):
    keys = {}
    maybe(rng, keys, "tokenizer_class", 0.75, lambda: rng.choice(CLASSES) + rng.choice(["", "Fast"]))
    for name in NAMES:
        maybe(rng, keys, name, 0.35, lambda: named(rng, True) if rng.random() < 0.85 else None)
    for name in ("add_bos_token", "add_eos_token"):
        maybe(rng, keys, name, 0.4, lambda: rng.choice([True, False] * 4 + [None, rng.randrange(2)]))
    maybe(rng, keys, "add_prefix_space", 0.25, lambda: rng.choice([True, False, None]))
    maybe(rng, keys, "clean_up_tokenization_spaces", 0.4, lambda: rng.choice([True, True, False, None]))
    maybe(rng, keys, "split_special_tokens", 0.15, lambda: rng.random() < 0.7)
    maybe(rng, keys, "legacy", 0.3, lambda: rng.random() < 0.5)
    maybe(rng, keys, "additional_special_tokens", 0.3, lambda: [named(rng, True) for _ in range(rng.randrange(4))])
    maybe(rng, keys, "extra_special_tokens", 0.1, lambda: {f"image_{i}_token": named(rng, True) for i in range(rng.randrange(3))})
    maybe(rng, keys, "added_tokens_decoder", 0.6, lambda: added_tokens_decoder(rng, tokenizer, size))
    maybe(rng, keys, "model_max_length", 0.4, lambda: 1000000000000000019884624838656 if rng.random() < 0.9 else float("inf"))
    return keys


def special_tokens_map(rng):
    keys = {}
    for name in NAMES:
        maybe(rng, keys, name, 0.4, lambda: named(rng, False))
    maybe(rng, keys, "additional_special_tokens", 0.3, lambda: [named(rng, False) for _ in range(rng.randrange(4))])
    return keys


def config(rng):
    keys = {"model_type": rng.choice(MODEL_TYPES)}
    maybe(rng, keys, "tokenizer_class", 0.2, lambda: rng.choice(CLASSES[1:]))
    return keys


def options_of_two_files(rng, tokenizer, files, size):
    """One token with options in one file and others in a second: those of older versions, and Qwen2's own default."""
    keys = files.setdefault("tokenizer_config.json", {"tokenizer_class": rng.choice(CLASSES)})
    value = {"content": rng.choice(CONTENTS), **plain(rng), rng.choice(["lstrip", "rstrip"]): True}
    name, kind = rng.choice(NAMES), rng.randrange(3)
    if kind == 0:
        same = [token for token in tokenizer["added_tokens"] if token["content"] == "<|endoftext|>"]
        if not same:
            same = [{"id": size + len(tokenizer["added_tokens"]), "content": "<|endoftext|>", "single_word": False}]
            tokenizer["added_tokens"] += same
        same[0].update(single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
        keys.update(tokenizer_class="Qwen2Tokenizer")
        keys.setdefault("added_tokens_decoder", {})[str(same[0]["id"])] = {**value, "content": "<|endoftext|>"}
        keys.pop(rng.choice(["eos_token", "unk_token", "pad_token"]), None)
        return
    keys.pop("added_tokens_decoder", None)
    files.setdefault("added_tokens.json", {})[value["content"]] = size + 60
    in_map = files.setdefault("special_tokens_map.json", {})
    in_map.pop(name, None)
    (in_map if kind == 1 else keys)[name] = value if kind == 1 else {"__type": "AddedToken", **value}


def make(rng, folder):
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer, size = tokenizer_json(rng, folder)
    files = {
        "tokenizer_config.json": (0.85, lambda: tokenizer_config(rng, tokenizer, size)),
        "config.json": (0.6, lambda: config(rng)),
        "special_tokens_map.json": (0.4, lambda: special_tokens_map(rng)),
        "added_tokens.json": (0.25, lambda: {c: size + 3 * i for i, c in enumerate(rng.sample(CONTENTS, rng.randrange(4)))}),
    }
    made = {name: contents() for name, (chance, contents) in files.items() if rng.random() < chance}
    if rng.random() < 0.2:
        options_of_two_files(rng, tokenizer, made, size)
        made["tokenizer.json"] = tokenizer
    for name, keys in made.items():
        (folder / name).write_text(json.dumps(keys, indent=1))
