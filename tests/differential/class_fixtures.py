"""Writes classes.json and class_folders.json: transformers' tokenizer classes, and what they make of small folders.

    python3 tests/differential/class_fixtures.py tests/fixtures/tokenizers
"""

import inspect
import json
import re
import sys
import tempfile
from pathlib import Path

import tokenizers
import transformers
from made_folders import CLASSES
from tokenizer_classes import load
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers.models.auto import configuration_auto, tokenization_auto

TEXT = "hi the<s>he</s> <x> hi<n> it 's . <|endoftext|>THE<unk> the<x>the<pad>"
BYTES = ["<|endoftext|>", "<s>", "</s>"]
X = {"content": "<x>", "lstrip": True, "rstrip": False, "single_word": False, "normalized": False, "special": True}
N = {"content": "<n>", "lstrip": False, "rstrip": True, "single_word": False, "normalized": True, "special": False}
THE = {"content": "the", "lstrip": False, "rstrip": False, "single_word": True, "normalized": True, "special": False}
# Each is added to a folder of each class: files, keys of the tokenizer_config.json.
CHANGES = {
    "nothing": {},
    "named": {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<n>", "pad_token": "<x>"},
    "named as nothing": {"bos_token": None, "eos_token": None, "unk_token": None, "pad_token": None, "add_bos_token": False},
    "named with options": {"eos_token": {"__type": "AddedToken", **X}, "bos_token": {"__type": "AddedToken", "content": "<s>"}},
    "bos": {"add_bos_token": True},
    "no bos": {"add_bos_token": False},
    "bos null": {"add_bos_token": None},
    "eos": {"add_eos_token": True, "eos_token": "</s>"},
    "prefix": {"add_prefix_space": True},
    "no prefix": {"add_prefix_space": False},
    "prefix null": {"add_prefix_space": None},
    "clean": {"clean_up_tokenization_spaces": True},
    "clean null": {"clean_up_tokenization_spaces": None},
    "split": {"split_special_tokens": True},
    "decoder": {"added_tokens_decoder": {"90": X, "80": N, "7": THE}, "eos_token": "<x>"},
    "decoder against the file": {"added_tokens_decoder": {"1": {**X, "content": "<s>"}, "2": {**N, "content": "</s>"}}},
    "more": {"additional_special_tokens": ["<n>", {"__type": "AddedToken", **X}]},
    "extra": {"extra_special_tokens": {"b_token": "<x>", "a_token": "<n>"}},
}
MAP = {"eos_token": {k: X[k] for k in X if k != "special"}, "pad_token": "<n>"}
FILES = {
    "map": {"special_tokens_map.json": MAP},
    "added": {"added_tokens.json": {"<n>": 70, "<x>": 60}},
    "map and added": {"special_tokens_map.json": {"additional_special_tokens": ["<x>"]}, "added_tokens.json": {"<n>": 70, "<x>": 60}},
}
OF_TYPE = {"LlamaTokenizer": "mistral", "GPTNeoXTokenizer": "gpt_neox", "GPT2Tokenizer": "gpt2", "Qwen2Tokenizer": "qwen2",
           "BloomTokenizer": "bloom"}  # fmt: skip


def tokenizer_json(kind):
    letters = "abcdefghijklmnopqrstuvwxyzTHE<>|/_,.'" + ("ĠĊ" if kind != "llama" else "▁")
    space = letters[-2] if kind != "llama" else "▁"
    contents = BYTES + list(letters) + ["th", "the", "hi", space + "t", space + "h"]
    merges = [("t", "h"), ("th", "e"), ("h", "i"), (space, "t"), (space, "h")]
    tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate(contents)}, merges))
    level = pre_tokenizers.ByteLevel(add_prefix_space=kind == "level")
    if kind == "llama":
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    else:
        tokenizer.normalizer = normalizers.Lowercase()
        tokenizer.pre_tokenizer = level if kind == "level" else pre_tokenizers.Sequence([pre_tokenizers.Digits(), level])
        tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(c, normalized=False) for c in BYTES[1:]])
    if kind == "sequence":
        tokenizer.post_processor = processors.TemplateProcessing(single="</s> $A", special_tokens=[("</s>", 2)])
    return json.loads(tokenizer.to_str())


def record(folder_files, kind):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, contents in {"tokenizer.json": tokenizer_json(kind), **folder_files}.items():
            (folder / file).write_text(json.dumps(contents))
        try:
            tokenizer = load(folder)
        except Exception as error:
            return {"raises": f"{type(error).__name__}: {str(error).splitlines()[0]}".replace(name, "FOLDER")[:100]}
        ids = tokenizer(TEXT).input_ids
        return {"class": type(tokenizer).__name__, "eos": tokenizer.eos_token_id, "pad": tokenizer.pad_token_id, "ids": ids,
                "text": tokenizer.decode(ids, skip_special_tokens=True)}  # fmt: skip


def folders():
    """The kind of tokenizer.json, keys of the tokenizer_config.json, keys of the config.json, name in FILES."""
    for name in CLASSES:
        kind = {"LlamaTokenizer": "llama", "CodeLlamaTokenizer": "llama"}.get(name, "level")
        for change in CHANGES:
            yield kind, [change], {"tokenizer_class": name}, None, None
        for file in FILES:
            yield kind, ["named"], {"tokenizer_class": name}, None, file
            yield kind, ["decoder"], {"tokenizer_class": name}, None, file
        for change in ("nothing", "bos", "no bos", "eos", "prefix"):
            yield "sequence", [change], {"tokenizer_class": name + "Fast"}, None, None
        if name in OF_TYPE:
            yield kind, None, {}, {"model_type": OF_TYPE[name]}, None
            yield kind, ["decoder"], {}, {"model_type": OF_TYPE[name]}, None
            yield kind, None, {}, {"model_type": "gpt2", "tokenizer_class": name}, None
    yield "level", ["nothing"], {}, None, None
    yield "level", None, {}, None, "map"


def files_of(changes, keys, config, file):
    out = dict(FILES.get(file, {}))
    if changes is not None:
        out["tokenizer_config.json"] = {**keys, **{k: v for change in changes for k, v in CHANGES[change].items()}}
    if config:
        out["config.json"] = config
    return out


def model_types():
    """By the class that AutoTokenizer makes of a config.json with this model_type alone."""
    out = {}
    for name in configuration_auto.CONFIG_MAPPING_NAMES:
        config = configuration_auto.CONFIG_MAPPING[name]
        try:
            slow, fast = tokenization_auto.TOKENIZER_MAPPING[config]
        except KeyError:
            continue
        if configuration_auto.config_class_to_model_type(config.__name__) and fast:
            out.setdefault(fast.__name__, []).append(name)
    return out


def keys():
    """All that transformers reads of a tokenizer_config.json."""
    base = transformers.PreTrainedTokenizerBase
    found = set(base.SPECIAL_TOKENS_ATTRIBUTES)
    for function in (base.__init__, base.from_pretrained.__func__, base._from_pretrained.__func__,
                     transformers.PreTrainedTokenizerFast.__init__, transformers.AutoTokenizer.from_pretrained.__func__):  # fmt: skip
        source = inspect.getsource(function)
        of_file = "(?:tokenizer_config|init_kwargs)" if "from_pretrained" in function.__name__ else "kwargs"
        found |= set(re.findall(of_file + r'(?:\.(?:pop|get|setdefault)\(|\[)"(\w+)"', source))
        found |= set(re.findall(r'"(\w+)" in ' + of_file, source))
    return found


def classes():
    of_types, out, all_keys = model_types(), {}, keys()
    for name in CLASSES:
        fast = tokenization_auto.tokenizer_class_from_name(name + "Fast")
        defaults = {k: p.default for k, p in inspect.signature(fast.__init__).parameters.items() if p.default is not p.empty}
        all_keys |= set(defaults)
        out[name] = {"defaults": defaults, "model_types": sorted(of_types.get(name + "Fast", []))}
    return {"made_by": f"transformers {transformers.__version__}", "classes": out, "keys": sorted(all_keys - {"args", "self"})}


def main():
    where = Path(sys.argv[1])
    (where / "classes.json").write_text(json.dumps(classes(), ensure_ascii=False, separators=(",", ":")) + "\n")
    lines, results = [], []  # many folders give the same ids and text
    for kind, changes, keys, config, file in folders():
        made = {"tokenizer": kind, "changes": changes, "keys": keys, "config": config, "file": file}
        made.update(record(files_of(changes, keys, config, file), kind))
        if "ids" in made:
            result = {"ids": made.pop("ids"), "text": made.pop("text")}
            if result not in results:
                results.append(result)
            made["result"] = results.index(result)
        lines.append(json.dumps({k: v for k, v in made.items() if v not in (None, {})}, ensure_ascii=False, separators=(",", ":")))
    head = {"made_by": f"transformers {transformers.__version__}, tokenizers {tokenizers.__version__}", "text": TEXT,
            "changes": CHANGES, "files": FILES,
            "tokenizers": {kind: tokenizer_json(kind) for kind in ("level", "sequence", "llama")},
            "results": results}  # fmt: skip
    text = json.dumps(head, ensure_ascii=False, separators=(",", ":"))[:-1] + ',"folders":[\n' + ",\n".join(lines) + "\n]}\n"
    (where / "class_folders.json").write_text(text)


if __name__ == "__main__":
    main()
