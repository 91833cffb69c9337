#!/usr/bin/env python3
"""Every key that transformers and PEFT know of the files that this program reads, with its default
and another value: tests/fixtures/config_keys.json, which tests/models/ignored_keys_test.cpp walks.
Usage: config_keys.py tests/fixtures/config_keys.json"""
import dataclasses
import inspect
import json
import re
import sys

import peft
import transformers
from peft import LoraConfig
from transformers import GenerationConfig, PretrainedConfig
from transformers import BloomConfig, GPT2Config, GPTNeoXConfig, LlamaConfig, MistralConfig, Qwen2Config

FAMILIES = [GPT2Config, LlamaConfig, MistralConfig, Qwen2Config, BloomConfig, GPTNeoXConfig]
NOT_KEYS = {"self", "kwargs", "int", "bool", "model_type", "use_return_dict"}
# Keys of files that the classes take without naming them.
ALSO = {
    "common": {"quantization_config": None, "auto_map": None, "gradient_checkpointing": False,
               "_name_or_path": "", "_attn_implementation": None, "torch_dtype": None},
    "gpt2": {"n_ctx": None, "head_dim": None},
    "llama": {"rope_parameters": None, "partial_rotary_factor": None},
    "mistral": {"rope_scaling": None, "rope_parameters": None, "layer_types": None,
                "partial_rotary_factor": None},
    "qwen2": {"rope_parameters": None, "head_dim": None, "pad_token_id": None,
              "partial_rotary_factor": None},
    "bloom": {"n_embed": None, "seq_length": None, "head_dim": None},
    "gpt_neox": {"rope_parameters": None, "rope_theta": 10000, "partial_rotary_factor": 0.25,
                 "head_dim": None},
}
# Where half the default, its opposite or a string with an x behind it would be no value of the key.
SCALING = {"rope_type": "linear", "factor": 2.0}
OTHER = {
    "n_inner": 100, "head_dim": 20, "num_key_value_heads": 16, "n_embed": 128, "seq_length": 512,
    "n_ctx": 512, "pad_token_id": 3, "bos_token_id": 4, "eos_token_id": 5, "sep_token_id": 6,
    "activation_function": "relu", "hidden_act": "gelu_new", "initializer_range": 0.5,
    "rope_scaling": SCALING, "rope_parameters": SCALING, "partial_rotary_factor": 0.5,
    "layer_types": ["full_attention", "sliding_attention"], "max_window_layers": 0,
    "quantization_config": {"quant_method": "fp8"}, "auto_map": {"AutoConfig": "code.Config"},
    "prune_heads": {"0": [1]}, "pruned_heads": {"0": [1]}, "pretraining_tp": 2,
    "id2label": {"0": "no", "1": "yes"}, "label2id": {"no": 0, "yes": 1}, "num_labels": 3,
    "problem_type": "regression", "dtype": "bfloat16", "torch_dtype": "bfloat16",
    "architectures": ["Other"], "task_specific_params": {"text-generation": {"do_sample": True}},
    "chunk_size_feed_forward": 4, "summary_type": "mean", "summary_activation": "tanh",
    "base_model_name_or_path": "folder", "target_modules": ["k_proj"],
    "exclude_modules": ["v_proj"], "init_lora_weights": "pissa", "bias": "all",
    "peft_type": "IA3", "rank_pattern": {"q_proj": 4}, "alpha_pattern": {"q_proj": 4},
    "layers_to_transform": [0], "layers_pattern": "layers", "modules_to_save": ["lm_head"],
    "task_type": "SEQ_CLS", "lora_dropout": 0.5, "megatron_config": {"use_cpu": True},
    "runtime_config": {"ephemeral_gpu_offload": True}, "loftq_config": {"loftq_bits": 4},
}
for key in ["_name_or_path", "name_or_path", "_commit_hash", "prefix", "tokenizer_class", "revision",
            "finetuning_task", "attn_implementation", "_attn_implementation", "peft_version"]:
    OTHER[key] = "x"
# Keys that say something only beside others.
BESIDE = {
    ("qwen2", "sliding_window"): {"use_sliding_window": True, "max_window_layers": 0},
    ("qwen2", "max_window_layers"): {"use_sliding_window": True, "num_hidden_layers": 28},
    ("qwen2", "use_sliding_window"): {"max_window_layers": 0},
    ("bloom", "slow_but_exact"): {"pretraining_tp": 2},
    ("bloom", "pretraining_tp"): {"slow_but_exact": True},
    ("adapter", "layers_pattern"): {"layers_to_transform": [0]},
    ("qwen2", "num_attention_heads"): {"num_key_value_heads": 16},
    ("qwen2", "layer_types"): {"num_hidden_layers": 2},
    ("mistral", "layer_types"): {"num_hidden_layers": 2},
}


def plain(value):
    try:
        json.dumps(value)
        return value
    except TypeError:  # a class of options
        return {}


def other_than(key, default):
    if key in OTHER:
        return OTHER[key]
    if isinstance(default, bool):
        return not default
    if isinstance(default, int):
        return default // 2 if default > 1 else default + 1
    if isinstance(default, float):
        return default / 2 if default else 0.25
    if isinstance(default, str):
        return default + "x"
    if isinstance(default, dict):
        return {"key": "value"}
    return 7


def signature_keys(cls):
    parameters = inspect.signature(cls.__init__).parameters.values()
    return {p.name: plain(p.default) for p in parameters
            if p.default is not inspect.Parameter.empty and str(p.default) != "<factory>"}


def documented_keys(cls):
    """Of the docstring's list and of what the constructor pops."""
    documented = re.findall(r"^ +(\w+) ?\(`", cls.__doc__ or "", re.M)
    if dataclasses.is_dataclass(cls):
        return {key: None for key in documented}
    popped = re.findall(r"kwargs\.(?:pop|get)\(\"(\w+)\"", inspect.getsource(cls.__init__))
    return {key: None for key in documented + popped}


def keys_of(cls, own_only=False):
    keys = documented_keys(cls)
    written = dataclasses.asdict(cls()) if dataclasses.is_dataclass(cls) else cls().to_dict()
    if own_only:
        common = PretrainedConfig().to_dict()
        written = {k: v for k, v in written.items() if k not in common}
    keys.update({key: plain(value) for key, value in written.items()})
    keys.update(signature_keys(cls))
    if own_only:
        keys.update({alias: keys[key] for alias, key in cls.attribute_map.items()})
    return {key: value for key, value in keys.items() if key not in NOT_KEYS}


def entries(name, keys):
    out = {}
    for key in sorted(keys):
        default = keys[key]
        out[key] = {"default": default, "other": other_than(key, default)}
        if (name, key) in BESIDE:
            out[key]["beside"] = BESIDE[name, key]
    return out


def main():
    result = {"transformers": transformers.__version__, "peft": peft.__version__, "families": {}}
    common = {**keys_of(PretrainedConfig), **ALSO["common"]}
    for cls in FAMILIES:
        name = cls.model_type
        keys = {**ALSO[name], **keys_of(cls, own_only=True)}
        result["families"][name] = entries(name, keys)
    result["common"] = entries("common", common)
    generation = {**keys_of(GenerationConfig), "_from_model_config": False}
    result["generation"] = entries("generation", generation)
    result["adapter"] = entries("adapter", keys_of(LoraConfig))
    with open(sys.argv[1], "w") as file:
        file.write(lines(result, 2) + "\n")


def lines(value, depth):
    """JSON whose values below `depth` (or deeper in "families") stand on one line each."""
    if depth == 0 or not isinstance(value, dict):
        return json.dumps(value, sort_keys=True)
    inner = [f"{json.dumps(key)}: {lines(value[key], depth - 1 + (key == 'families'))}"
             for key in sorted(value)]
    return "{\n" + ",\n".join(inner) + "}"


main()
