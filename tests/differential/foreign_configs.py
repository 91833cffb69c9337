#!/usr/bin/env python3
"""What accelerate and transformers themselves make of configurations, and every key that they know:
tests/fixtures/adopt/reference.json, with which tests/tools/guides/adopt/reference_test.cpp compares.
Usage: foreign_configs.py tests/fixtures/adopt/reference.json"""
import dataclasses
import inspect
import json
import os
import sys
import tempfile

import yaml
from accelerate.commands.config.config_args import ClusterConfig
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils import FullyShardedDataParallelPlugin
from accelerate.utils.launch import prepare_multi_gpu_env
from transformers import TrainingArguments
from transformers.optimization import TYPE_TO_SCHEDULER_FUNCTION

FSDP = {"distributed_type": "FSDP", "num_processes": 4, "num_machines": 1, "mixed_precision": "no"}
CLASSES = {"fsdp_transformer_layer_cls_to_wrap": "BloomBlock"}

# fsdp_config of accelerate's file
ACCELERATE = [
    {},
    {"fsdp_sharding_strategy": "FULL_SHARD"},
    {"fsdp_sharding_strategy": "SHARD_GRAD_OP"},
    {"fsdp_sharding_strategy": "NO_SHARD"},
    {"fsdp_sharding_strategy": "HYBRID_SHARD"},
    {"fsdp_sharding_strategy": "HYBRID_SHARD_ZERO2"},
    {"fsdp_sharding_strategy": 2},
    {"fsdp_sharding_strategy": "FULL"},
    {"fsdp_backward_prefetch": "BACKWARD_PRE", "fsdp_forward_prefetch": True},
    {"fsdp_backward_prefetch": "BACKWARD_POST"},
    {"fsdp_backward_prefetch": "NO_PREFETCH"},
    {"fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP", **CLASSES},
    {"fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
     "fsdp_transformer_layer_cls_to_wrap": "BloomBlock,BloomMLP"},
    {"fsdp_auto_wrap_policy": "SIZE_BASED_WRAP", "fsdp_min_num_params": 2000},
    {"fsdp_auto_wrap_policy": "NO_WRAP", **CLASSES},
    {"fsdp_auto_wrap_policy": "WRAP"},
    {**CLASSES},
    {"fsdp_min_num_params": 2000},
    {"fsdp_activation_checkpointing": True, "fsdp_sync_module_states": True},
    {"activation_checkpointing": True, "forward_prefetch": True},
]

# TrainingArguments
TRAINER = [
    {},
    {"fsdp": "full_shard"},
    {"fsdp": True},
    {"fsdp": "shard_grad_op auto_wrap"},
    {"fsdp": ["auto_wrap", "no_shard"]},
    {"fsdp": "hybrid_shard"},
    {"fsdp": "hybrid_shard_zero2 auto_wrap"},
    {"fsdp": "auto_wrap"},
    {"fsdp": "offload"},
    {"fsdp": "full_shard shard_grad_op"},
    {"fsdp": "full_shrad"},
    {"fsdp": "full_shard", "fsdp_config": {"transformer_layer_cls_to_wrap": ["BloomBlock"]}},
    {"fsdp": "full_shard", "fsdp_config": {"fsdp_min_num_params": 2000}},
    {"fsdp": "full_shard auto_wrap", "fsdp_config": {"transformer_layer_cls_to_wrap": ["A", "B"]}},
    {"fsdp": "full_shard auto_wrap", "fsdp_config": {"fsdp_min_num_params": 2000}},
    {"fsdp": "full_shard auto_wrap",
     "fsdp_config": {"fsdp_auto_wrap_policy": "SIZE_BASED_WRAP", "fsdp_min_num_params": 2000}},
    {"fsdp": "full_shard auto_wrap",
     "fsdp_config": {"min_num_params": 2000, "transformer_layer_cls_to_wrap": ["A"]}},
    {"fsdp": "full_shard auto_wrap", "fsdp_min_num_params": 2000},
    {"fsdp": "full_shard", "fsdp_config": {"backward_prefetch": "backward_post"}},
    {"fsdp": "full_shard", "fsdp_config": {"backward_prefetch": "backward_pre",
                                           "forward_prefetch": True}},
    {"fsdp": "full_shard", "fsdp_config": {"sync_module_states": False,
                                           "cpu_ram_efficient_loading": True}},
    {"fsdp_config": {"transformer_layer_cls_to_wrap": ["A"]}},
    {"bf16": True, "fp16": True},
    {"learning_rate": 1e-4, "weight_decay": 0.01, "num_train_epochs": 2, "max_grad_norm": 0.5},
    {"max_steps": 10, "warmup_ratio": 0.25, "lr_scheduler_type": "cosine"},
    {"lr_scheduler_type": "linaer"},
    {"optim": "sgd", "per_device_train_batch_size": 3, "gradient_accumulation_steps": 5},
]


def plugin(env):
    """The sharding that accelerate makes of its variables."""
    saved = dict(os.environ)
    for name in list(os.environ):
        if name.startswith("FSDP_"):
            del os.environ[name]
    os.environ.update({k: v for k, v in env.items() if k.startswith("FSDP_")})
    # These two ask for a GPU.
    os.environ.update({"FSDP_SYNC_MODULE_STATES": "false", "FSDP_CPU_RAM_EFFICIENT_LOADING": "false"})
    try:
        made = FullyShardedDataParallelPlugin()
    finally:
        os.environ.clear()
        os.environ.update(saved)
    wrap = getattr(made.auto_wrap_policy, "__name__", "none")
    by_class = wrap.startswith("transformer")
    return {
        "strategy": made.sharding_strategy.name.lower().lstrip("_"),
        "wrap": {"none": "none"}.get(wrap, "transformer_block" if by_class else "size"),
        "classes": (made.transformer_cls_names_to_wrap or []) if by_class else [],
        "min_num_params": made.min_num_params if wrap.startswith("size") else None,
        "backward_prefetch": {"BACKWARD_PRE": "pre", "BACKWARD_POST": "post", None: "none"}[
            made.backward_prefetch and made.backward_prefetch.name],
        "forward_prefetch": made.forward_prefetch,
        "recompute": "full" if made.activation_checkpointing else "none",
    }


def accelerate_case(fsdp_config):
    text = yaml.safe_dump({**FSDP, "fsdp_config": fsdp_config}, sort_keys=False)
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(text)
        file.flush()
        args = launch_command_parser().parse_args(["--config_file", file.name, "train.py"])
        args, _, _ = _validate_launch_command(args)
        try:
            result = plugin(prepare_multi_gpu_env(args))
        except (KeyError, ValueError) as error:
            return {"program": "accelerate", "text": text, "error": str(error)}
    return {"program": "accelerate", "text": text, "sharding": result}


def trainer_case(values):
    text = json.dumps(values)
    saved = dict(os.environ)
    for name in list(os.environ):
        if name.startswith(("FSDP_", "ACCELERATE_")):
            del os.environ[name]
    try:
        made = TrainingArguments(output_dir="x", report_to=[], use_cpu=True, **json.loads(text))
        env = dict(os.environ)
    except ValueError as error:
        return {"program": "hf", "text": text, "error": str(error)}
    finally:
        os.environ.clear()
        os.environ.update(saved)
    sharded = "ACCELERATE_USE_FSDP" in env
    steps = made.max_steps if made.max_steps > 0 else None
    if sharded:
        return {"program": "hf", "text": text, "sharding": plugin(env)}
    return {
        "program": "hf", "text": text, "sharding": None,
        "training": {
            "train.lr": made.learning_rate,
            "train.clip_norm": made.max_grad_norm,
            "train.optimizer.weight_decay": made.weight_decay,
            "train.optimizer.beta1": made.adam_beta1 if made.optim != "sgd" else None,
            "train.optimizer.beta2": made.adam_beta2 if made.optim != "sgd" else None,
            "train.optimizer.kind": "sgd" if made.optim == "sgd" else "adamw",
            "train.schedule.kind": made.lr_scheduler_type.value,
            "train.schedule.warmup": made.get_warmup_steps(steps) if steps else None,
            "train.rows_per_pass": made.per_device_train_batch_size,
            "train.micro_steps": made.gradient_accumulation_steps,
            "train.steps": steps,
            "train.epochs": None if steps else int(made.num_train_epochs),
            "train.log_every": int(made.logging_steps),
            "train.seed": made.seed,
            "checkpoint.every": int(made.save_steps),
        },
    }


def keys_of(parser_prefix):
    actions = launch_command_parser()._actions
    names = {o[2:] for a in actions for o in a.option_strings if o.startswith("--")}
    return sorted(n for n in names if n.startswith(parser_prefix))


def deepspeed_keys():
    """What accelerate's file says in its section for DeepSpeed."""
    group = next(g for g in launch_command_parser()._action_groups
                 if g.title == "DeepSpeed Arguments")
    names = {o[2:] for a in group._group_actions for o in a.option_strings if o.startswith("--")}
    return sorted(n for n in names if "-" not in n and n != "use_deepspeed")


def schedule_keys():
    """What lr_scheduler_kwargs hands to transformers' own schedules."""
    given = {"optimizer", "num_warmup_steps", "num_training_steps", "kwargs"}
    functions = [f for name, f in TYPE_TO_SCHEDULER_FUNCTION.items() if "reduce" not in name.value]
    names = {n for f in functions for n in inspect.signature(f).parameters}
    return sorted(names - given)


def compact(value):
    return json.dumps(value, separators=(",", ":"))


def main():
    result = {
        "accelerate_keys": [f.name for f in dataclasses.fields(ClusterConfig)],
        "fsdp_keys": keys_of("fsdp_"),
        "deepspeed_keys": deepspeed_keys(),
        "schedule_keys": schedule_keys(),
        "cases": [accelerate_case(each) for each in ACCELERATE]
        + [trainer_case(each) for each in TRAINER],
    }
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        file.write("{\n")
        for name in ("accelerate_keys", "fsdp_keys", "deepspeed_keys", "schedule_keys"):
            file.write(f" {json.dumps(name)}: {compact(result[name])},\n")
        cases = ",\n".join("  " + compact(each) for each in result["cases"])
        file.write(f' "cases": [\n{cases}\n ]\n}}\n')


if __name__ == "__main__":
    main()
