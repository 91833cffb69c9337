"""One seed is one set of arguments of transformers' TrainingArguments, or of TRL's SFTConfig where Python has it: the
library writes them, `fsdp adopt hf` takes them over, and the library's own values are compared with ours. Of some seeds
a tiny model is trained, and the learning rate of every step is compared.

    python3 tests/differential/trainer_arguments.py tests/fixtures/adopt     # writes written_<version>.json
"""

import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
import warnings
from collections import Counter
from pathlib import Path

os.environ["CUDA_VISIBLE_DEVICES"] = ""
warnings.simplefilter("ignore")
import torch  # noqa: E402
import transformers  # noqa: E402
import yaml  # noqa: E402
from transformers import TrainingArguments, get_scheduler  # noqa: E402

try:
    import trl
    from trl import SFTConfig
except ImportError:
    trl = SFTConfig = None

transformers.logging.set_verbosity(transformers.logging.CRITICAL)
MAJOR = int(transformers.__version__.split(".")[0])
TRAINED = 3  # one of so many seeds trains a model
STEPS_OF_EPOCH = 7
LAYERS = ["LlamaDecoderLayer", "GPT2Block", "GPTNeoXLayer"]
# What adopt refuses, by what it says. A file that is refused for another reason fails.
REFUSABLE = ["the optimizers that work on shards", "there is no Adagrad", "reduce_lr_on_plateau", "a share of all steps",
             "expected an integer", "expected completion_only_loss: false", "sft: expected data.pack", "the best checkpoint has the smallest loss",
             "nll or chunked_nll", "a warm-up rises by equal steps", "chats here", "labels are not smoothed", "no noise on embeddings",
             "expected one of constant, ", "split_batches", "to be true, got both", "expected gradient_checkpointing with it"]  # fmt: skip


# ---- what a seed draws ----
def draw_training(rng):
    some = {"per_device_train_batch_size": rng.randint(1, 3), "learning_rate": rng.choice([1e-4, 3e-5, 0.01, 2.5e-06])}
    optional = {
        "gradient_accumulation_steps": rng.randint(1, 4), "weight_decay": rng.choice([0.0, 0.01, 0.1]),
        "adam_beta1": rng.choice([0.9, 0.85]), "adam_beta2": rng.choice([0.999, 0.95]), "adam_epsilon": rng.choice([1e-8, 1e-6]),
        "max_grad_norm": rng.choice([1.0, 0.5, 0.0]), "seed": rng.randint(0, 1000), "data_seed": rng.choice([None, 3]),
        "logging_steps": rng.choice([1, 10, 5, 0.25]), "logging_strategy": rng.choice(["steps", "epoch"]), "save_steps": rng.choice([5, 100, 0.5]),
        "save_strategy": rng.choice(["no", "epoch", "steps"]), "save_total_limit": rng.choice([None, 1, 3]),
        "eval_strategy": rng.choice(["no", "epoch", "steps"]), "eval_steps": rng.choice([None, 5, 0.2]),
        "optim": rng.choice(["adamw_torch", "adamw_torch_fused", "sgd"] * 3 + ["adafactor"]),
        "dataloader_drop_last": rng.random() < 0.5, "dataloader_num_workers": rng.randint(0, 3), "group_by_length": True,
        "train_sampling_strategy": rng.choice(["random", "sequential", "group_by_length"]), "use_cache": rng.random() < 0.5,
        "average_tokens_across_devices": rng.random() < 0.5, "run_name": "a run", "full_determinism": True, "enable_jit_checkpoint": False,
        "torch_compile": False, "label_smoothing_factor": rng.choice([0.0] * 9 + [0.1]), "neftune_noise_alpha": rng.choice([None] * 9 + [5.0]),
        "ddp_timeout": rng.choice([1800, 7200]), "include_num_input_tokens_seen": rng.choice(["no", "all"]), "dataloader_in_order": False,
        "accelerator_config": {"split_batches": rng.random() < 0.05}, "push_to_hub": False, "hub_model_id": "a/b", "save_only_model": True,
    }  # fmt: skip
    for key, value in optional.items():
        if rng.random() < 0.3:
            some[key] = value
    return some


def draw_length(rng):
    length = {"max_steps": rng.randint(4, 30)} if rng.random() < 0.6 else {"num_train_epochs": rng.randint(1, 3)}
    if rng.random() < 0.7:
        if rng.random() < 0.5:
            length["warmup_steps"] = rng.randint(0, 4)
        elif MAJOR < 5:
            length["warmup_ratio"] = rng.choice([0.1, 0.25, 0.5])
        else:
            length["warmup_steps"] = rng.choice([0.1, 0.25, 0.5])
    kinds = {
        "linear": {}, "cosine": {"num_cycles": 0.75}, "constant": {}, "constant_with_warmup": {}, "cosine_with_restarts": {"num_cycles": 2},
        "polynomial": {"lr_end": 1e-7, "power": 2.0}, "inverse_sqrt": {}, "cosine_with_min_lr": {"min_lr_rate": 0.1},
        "warmup_stable_decay": {"num_decay_steps": 3},
    }  # fmt: skip
    if rng.random() < 0.8:
        kind = rng.choice(list(kinds))
        length["lr_scheduler_type"] = kind
        needed = kind in ("cosine_with_min_lr", "warmup_stable_decay")
        if kinds[kind] and (needed or rng.random() < 0.5):
            length["lr_scheduler_kwargs"] = kinds[kind]
    return length


def draw_sharding(rng):
    if rng.random() < 0.25:
        return {"fsdp_config": {"min_num_params": 3}} if rng.random() < 0.2 else {}
    strategy = rng.choice(["full_shard", "shard_grad_op"] * (1 if MAJOR < 5 else 4) + ["no_shard", "hybrid_shard"])
    words = [strategy] + ["auto_wrap"] * (rng.random() < 0.6) + ["offload"] * (rng.random() < 0.2)
    rng.shuffle(words)
    config, prefix = {}, rng.choice(["", "fsdp_"])
    by_class = rng.choice([None, rng.sample(LAYERS, rng.randint(1, 2)), LAYERS[0]])
    optional = {
        "transformer_layer_cls_to_wrap": by_class, "min_num_params": 0 if by_class else rng.choice([0, 2000, 100000]),
        "backward_prefetch": rng.choice(["backward_pre", "backward_post", "no_prefetch"]), "forward_prefetch": rng.random() < 0.5,
        "limit_all_gathers": True, "use_orig_params": rng.random() < 0.5, "sync_module_states": True,
        "cpu_ram_efficient_loading": rng.random() < 0.5, "state_dict_type": rng.choice(["FULL_STATE_DICT", "SHARDED_STATE_DICT"]),
        "activation_checkpointing": rng.random() < 0.5, "xla": False, "xla_fsdp_grad_ckpt": False,
        "auto_wrap_policy": rng.choice(["TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP"]), "cpu_offload": rng.random() < 0.3,
        "offload_params": False, "version": rng.choice([1, 2]), "reshard_after_forward": rng.random() < 0.5,
    }  # fmt: skip
    for key, value in optional.items():
        if value is not None and rng.random() < 0.35:
            config[prefix + key] = value
    if config.get(prefix + "version") == 1 and prefix + "reshard_after_forward" in config:
        config[prefix + "reshard_after_forward"] = rng.choice(["full_shard", "shard_grad_op"])
    fsdp = rng.choice([" ".join(words), words, True])
    return {"fsdp": fsdp, **({"fsdp_config": config} if config else {})}


def draw_rest(rng, cls):
    some = dict(rng.choice([{}, {"bf16": True}, {"fp16": True}, {"bf16": False, "fp16": False}]))
    if rng.random() < 0.3:
        some[rng.choice(["gradient_checkpointing", "activation_checkpointing"])] = rng.random() < 0.7
        if rng.random() < 0.4 and MAJOR >= 5:
            some["activation_checkpointing_kwargs"] = {"every_n_layers": rng.randint(1, 3)}
    if cls is TrainingArguments:
        return some
    optional = {"max_length": rng.choice([64, 512, None]), "packing": rng.random() < 0.5, "packing_strategy": rng.choice(["bfd", "wrapped"]),
                "completion_only_loss": rng.choice([None, True, False]), "dataset_text_field": "body", "eos_token": "</s>",
                "assistant_only_loss": rng.random() < 0.05, "loss_type": rng.choice(["nll"] * 9 + ["dft"]), "padding_free": False,
                "shuffle_dataset": True, "activation_offloading": rng.random() < 0.2, "dataset_num_proc": 2}  # fmt: skip
    return some | {key: value for key, value in optional.items() if rng.random() < 0.4}


def draw(rng):
    cls = SFTConfig if SFTConfig and rng.random() < 0.4 else TrainingArguments
    values = draw_training(rng) | draw_length(rng) | draw_sharding(rng) | draw_rest(rng, cls)
    known = {field for field in cls.__dataclass_fields__}
    return cls, {key: value for key, value in values.items() if key in known}


# ---- what the library makes of it ----
class Made:
    """The library's object; what it has told accelerate, and the text that it writes."""

    def __init__(self, cls, values):
        saved = dict(os.environ)
        for name in list(os.environ):
            if name.startswith(("FSDP_", "ACCELERATE_")):
                del os.environ[name]
        try:
            self.args = cls(output_dir="out", use_cpu=True, report_to=[], **json.loads(json.dumps(values)))
            self.env = dict(os.environ)
        finally:
            os.environ.clear()
            os.environ.update(saved)
        self.text = self.args.to_json_string()
        self.is_sft = SFTConfig is not None and cls is SFTConfig

    def sharding(self):
        args = self.args
        if not args.fsdp:
            return {"fsdp.strategy": "no_shard"}
        plugin = getattr(args, "fsdp_plugin_args", None)
        if plugin is not None:
            return self.plugin_sharding(plugin)
        config, words = args.fsdp_config, [str(getattr(word, "value", word)) for word in args.fsdp]
        strategy = [word for word in words if word not in ("auto_wrap", "offload")]
        policy = self.env.get("FSDP_AUTO_WRAP_POLICY", "NO_WRAP")
        out = {"fsdp.strategy": strategy[0] if strategy else "full_shard",
               "fsdp.wrap": {"NO_WRAP": "none", "SIZE_BASED_WRAP": "size"}.get(policy, "transformer_block"),
               "fsdp.offload": "all" if "offload" in words else "none",
               "train.recompute.mode": self.recompute(config.get("activation_checkpointing"))}  # fmt: skip
        if int(config.get("version", 1)) == 1:  # the library hands on no version: accelerate's file says it
            out["fsdp.backward_prefetch"] = {"BACKWARD_PRE": "pre", "BACKWARD_POST": "post"}.get(self.env["FSDP_BACKWARD_PREFETCH"], "none")
            out["fsdp.forward_prefetch"] = self.env["FSDP_FORWARD_PREFETCH"] == "true"
        if "reshard_after_forward" in config:
            out["fsdp.strategy"] = self.of_reshard(config["reshard_after_forward"], out["fsdp.strategy"])
        return self.with_wrap(out, self.env.get("FSDP_TRANSFORMER_CLS_TO_WRAP"), config["min_num_params"])

    def of_reshard(self, reshard, strategy):
        if isinstance(reshard, bool):
            return {True: "full_shard", False: "shard_grad_op"}[reshard] if strategy in ("full_shard", "shard_grad_op") else strategy
        return reshard

    def with_wrap(self, out, classes, size):
        if out["fsdp.wrap"] == "transformer_block" and classes:
            out["fsdp.wrap_classes"] = classes.split(",")
        if out["fsdp.wrap"] == "size":
            out["fsdp.min_num_params"] = size
        return out

    def plugin_sharding(self, plugin):
        policy = {"NO_WRAP": "none", "SIZE_BASED_WRAP": "size"}.get(plugin["auto_wrap_policy"], "transformer_block")
        out = {"fsdp.wrap": policy, "fsdp.offload": "all" if plugin.get("cpu_offload") else "none",
               "fsdp.strategy": self.of_reshard(plugin["reshard_after_forward"], "full_shard"),
               "train.recompute.mode": self.recompute(plugin.get("activation_checkpointing"))}  # fmt: skip
        first = plugin["fsdp_version"] == 1
        out["fsdp.forward_prefetch"] = plugin["forward_prefetch"] if first else True
        prefetch = plugin["backward_prefetch"] if first else "BACKWARD_PRE"
        out["fsdp.backward_prefetch"] = {"BACKWARD_PRE": "pre", "BACKWARD_POST": "post"}.get(prefetch, "none")
        if policy == "size" and not plugin.get("min_num_params"):
            del out["fsdp.wrap"]
            return out
        return self.with_wrap(out, plugin.get("transformer_cls_names_to_wrap"), plugin.get("min_num_params"))

    def recompute(self, inside=False):
        args = self.args
        if args.gradient_checkpointing or getattr(args, "activation_checkpointing", False):
            return "offload" if self.is_sft and args.activation_offloading else "full"
        return "full" if inside else "none"

    def values(self):
        """Our keys. Values that the library does not use are left out."""
        args, steps = self.args, self.args.max_steps if self.args.max_steps > 0 else None
        adam = args.optim.startswith("adamw")
        share = lambda value: value if value >= 1 or not steps else -(-value * steps // 1)  # noqa: E731
        interval = lambda how, value: {"no": 0, "epoch": "epoch"}.get(how.value) if how.value != "steps" else int(share(value))  # noqa: E731
        dtype = "bf16" if args.bf16 else "f16" if args.fp16 else "f32"
        order = getattr(args, "train_sampling_strategy", "random")
        out = {
            "train.lr": args.learning_rate, "train.clip_norm": args.max_grad_norm, "train.optimizer.weight_decay": args.weight_decay,
            "train.optimizer.kind": "adamw" if adam else args.optim.value, "train.rows_per_pass": args.per_device_train_batch_size,
            "train.micro_steps": args.gradient_accumulation_steps, "train.seed": args.seed, "train.dtype": dtype,
            "train.recompute.mode": self.recompute(), "checkpoint.keep": args.save_total_limit or 0,
            "checkpoint.every": interval(args.save_strategy, args.save_steps),
            "train.loss_mean": "tokens" if args.average_tokens_across_devices else "ranks",
            "data.last_batch": "drop_last" if args.dataloader_drop_last else "short", "runtime.timeout_s": args.ddp_timeout,
            "data.shuffle": order != "sequential",
        }  # fmt: skip
        out |= {"train.steps": steps} if steps else {"train.epochs": int(args.num_train_epochs)}
        if adam:
            out |= {"train.optimizer.beta1": args.adam_beta1, "train.optimizer.beta2": args.adam_beta2, "train.optimizer.epsilon": args.adam_epsilon}
        if args.eval_strategy.value != "no":
            out["train.eval_every"] = interval(args.eval_strategy, args.eval_steps or args.logging_steps)
        if args.logging_strategy.value != "no":
            out["train.log_every"] = interval(args.logging_strategy, args.logging_steps)
        kwargs = getattr(args, "activation_checkpointing_kwargs", None) or {}
        if self.recompute() != "none" and "every_n_layers" in kwargs:
            out["train.recompute.every"] = kwargs["every_n_layers"]
        out |= self.sharding()
        return out | self.sft_values()

    def sft_values(self):
        if not self.is_sft:
            return {}
        out = {"data.pack": "documents" if self.args.packing else "examples", "data.field": self.args.dataset_text_field}
        if self.args.max_length:
            out["data.sequence_length"] = self.args.max_length
        if self.args.completion_only_loss is not None:
            out["data.objective"] = "sft" if self.args.completion_only_loss else "lm"
        return out

    def rates(self, steps):
        args = self.args
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=args.learning_rate)
        schedule = get_scheduler(args.lr_scheduler_type, optimizer, num_warmup_steps=args.get_warmup_steps(steps), num_training_steps=steps,
                                 scheduler_specific_kwargs=args.lr_scheduler_kwargs or {})  # fmt: skip
        rates = []
        for _ in range(steps):
            rates.append(schedule.get_last_lr()[0])
            optimizer.step()
            schedule.step()
        return rates


# ---- what this program makes of it ----
def flat(tree, prefix=""):
    out = {}
    for key, value in (tree or {}).items():
        out |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return out


def adopted_values(text):
    """Keys that wait as comments count, too."""
    lines = []
    for line in text.splitlines():
        if line.startswith("# Not taken over") or line.startswith("# Off there"):
            break
        waiting = re.match(r"^( +)# ([a-z_0-9]+: .*)$", line)
        lines.append(waiting[1] + waiting[2] if waiting else line)
    return flat(yaml.safe_load("\n".join(lines)))


TINY = {"model.model_type": "gpt2", "model.hidden_size": 8, "model.layers": 1, "model.heads": 1, "model.vocab_size": 16,
        "data.format": "synthetic", "data.sequence_length": 4, "data.objective": "lm", "train.dtype": "f32", "train.reduce_dtype": "f32",
        "fsdp.strategy": "no_shard", "fsdp.offload": "none", "checkpoint.every": 0, "train.save": "false", "train.log_every": 1,
        "train.log_format": "ours", "train.optimizer.kind": "adamw", "train.recompute.mode": "none", "fsdp.wrap_classes": "[]"}  # fmt: skip


def run(command):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=300)


def trained_rates(fsdp, config, folder, rows):
    settings = TINY | {"runtime.run_dir": folder / "run", "data.synthetic_rows": rows}
    done = run([fsdp, "train", "--config", config, "--set", *(f"{key}={value}" for key, value in settings.items())])
    if done.returncode != 0:
        return done.stderr[-400:]
    lines = (folder / "run" / "metrics.jsonl").read_text().splitlines()
    return [row["learning_rate"] for row in map(json.loads, lines) if "learning_rate" in row]


def same(ours, theirs):
    if isinstance(theirs, bool) or isinstance(ours, bool):
        return str(ours).lower() == str(theirs).lower()
    try:
        return abs(float(ours) - float(theirs)) <= 1e-9 * abs(float(theirs))
    except (TypeError, ValueError):
        return str(ours) == str(theirs)


def effective(values):
    """full_shard that keeps what a forward gathered is shard_grad_op."""
    out, reshard = dict(values), values.get("fsdp.reshard_after_forward")
    if out.get("fsdp.strategy") in ("full_shard", "shard_grad_op") and reshard in (True, False):
        out["fsdp.strategy"] = "full_shard" if reshard else "shard_grad_op"
    return out


class Checker:
    def __init__(self, fsdp, scratch):
        self.fsdp, self.scratch = fsdp, scratch
        self.counts, self.reasons, self.failures = Counter(), Counter(), []
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        run([fsdp, "train", "--set", *(f"{key}={value}" for key, value in TINY.items()), "train.steps=1", f"runtime.run_dir={scratch / 'default'}"])
        self.default = flat(yaml.safe_load((scratch / "default" / "config.yaml").read_text()))
        for key in TINY:
            self.default.pop(key, None)
        self.default |= {"data.shuffle": True, "train.micro_steps": 1, "fsdp.offload": "none", "train.recompute.mode": "none",
                         "train.dtype": "f32", "train.optimizer.kind": "adamw", "data.objective": "lm", "data.field": "text"}  # fmt: skip

    def fail(self, seed, what):
        self.counts["differ"] += 1
        self.failures.append((seed, what))

    def check(self, seed):
        rng = random.Random(f"arguments {seed}")
        cls, values = draw(rng)
        try:
            made = Made(cls, values)
            expected = made.values()
        except (ValueError, TypeError, KeyError, RuntimeError) as error:
            self.counts["raises"] += 1
            self.reasons["raises: " + str(error).splitlines()[0][:90]] += 1
            return
        folder = self.scratch / str(seed)
        folder.mkdir(exist_ok=True)
        (folder / "args.json").write_text(made.text)
        done = run([self.fsdp, "adopt", "hf", "--literal", folder / "args.json", "--ranks-per-node", 2])
        if done.returncode != 0:
            said = done.stderr.strip().splitlines()[-1]
            known = next((reason for reason in REFUSABLE if reason in said), None)
            if known is None:
                return self.fail(seed, f"refused: {said}")
            self.counts["refused"] += 1
            self.reasons["refused: " + known] += 1
            return
        (folder / "ours.yaml").write_text(done.stdout)
        ours = effective(adopted_values(done.stdout))
        for key, value in expected.items():
            if not same(ours.get(key, self.default.get(key)), value):
                return self.fail(seed, f"{key}: {ours.get(key, self.default.get(key))} for {value} of {values}")
        self.counts["agree"] += 1
        if seed % TRAINED == 0:
            self.train(seed, made, folder)

    def train(self, seed, made, folder):
        args = made.args
        batch = args.per_device_train_batch_size * args.gradient_accumulation_steps
        steps = args.max_steps if args.max_steps > 0 else STEPS_OF_EPOCH * int(args.num_train_epochs)
        ours = trained_rates(self.fsdp, folder / "ours.yaml", folder, batch * STEPS_OF_EPOCH)
        theirs = made.rates(steps)
        well = isinstance(ours, list) and len(ours) == steps and all(abs(a - b) <= 1e-6 * max(theirs) for a, b in zip(ours, theirs))
        if well:
            self.counts["trained"] += 1
        else:
            self.fail(seed, f"rates: {ours} for {theirs}")


def check_seeds(fsdp, seeds, scratch):
    begin, checker = time.time(), Checker(fsdp, scratch)
    for seed in seeds:
        checker.check(seed)
    counts = checker.counts
    libraries = f"transformers {transformers.__version__}" + (f", TRL {trl.__version__}" if trl else "")
    print(f"arguments of {libraries}: {counts['agree']} agree ({counts['trained']} of them trained, the rate of every step), "
          f"{counts['refused']} refused by name, {counts['differ']} differ; the library raises for {counts['raises']}; "
          f"{time.time() - begin:.0f} s")  # fmt: skip
    for reason, count in checker.reasons.most_common(20):
        print(f"  {count}: {reason}")
    for seed, what in checker.failures[:8]:
        print(f"seed {seed}: {what[:900]}")
    return counts["differ"], counts["agree"] + counts["refused"] + counts["raises"]


# ---- fixtures ----
FSDP1 = {"transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"], "backward_prefetch": "backward_pre", "forward_prefetch": True,
         "limit_all_gathers": True, "use_orig_params": True, "sync_module_states": True, "cpu_ram_efficient_loading": True,
         "state_dict_type": "SHARDED_STATE_DICT", "activation_checkpointing": True}  # fmt: skip
FIXTURES = [
    {}, {"fsdp": "full_shard"}, {"fsdp": True}, {"fsdp": ["shard_grad_op", "auto_wrap"]}, {"fsdp": "full_shard offload"},
    {"fsdp": "full_shard auto_wrap", "fsdp_config": {"transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"]}},
    {"fsdp": "full_shard auto_wrap", "fsdp_config": {"fsdp_min_num_params": 2000}},
    {"fsdp": "full_shard auto_wrap", "fsdp_config": FSDP1}, {"fsdp": True, "fsdp_config": {"fsdp_version": 1, **FSDP1}},
    {"fsdp": True, "fsdp_config": {"fsdp_version": 2, "reshard_after_forward": False, "transformer_layer_cls_to_wrap": "GPT2Block"}},
    {"fsdp": True, "fsdp_config": {"auto_wrap_policy": "SIZE_BASED_WRAP", "min_num_params": 2000, "cpu_offload": True}},
    {"fsdp": True, "fsdp_config": {"auto_wrap_policy": "NO_WRAP", "activation_checkpointing": True}},
    {"fsdp_config": {"min_num_params": 3}}, {"fsdp": "full_shard", "fsdp_min_num_params": 2000},
    {"fsdp": "full_shard auto_wrap", "fsdp_transformer_layer_cls_to_wrap": "GPT2Block"},
    {"activation_checkpointing": True, "activation_checkpointing_kwargs": {"every_n_layers": 2}}, {"gradient_checkpointing": True},
    {"train_sampling_strategy": "sequential", "use_cache": True, "enable_jit_checkpoint": True, "dataloader_in_order": False},
    {"max_steps": 20, "warmup_steps": 0.25, "logging_steps": 0.1, "lr_scheduler_type": "cosine", "bf16": True},
    {"max_steps": 20, "warmup_ratio": 0.25, "optim": "sgd", "gradient_accumulation_steps": 4, "fp16": True},
]  # fmt: skip
SFT_FIXTURES = [{}, {"packing": True, "max_length": 512, "completion_only_loss": False}, {"completion_only_loss": True, "dataset_text_field": "body"},
                {"activation_offloading": True, "fsdp": "full_shard auto_wrap"}]  # fmt: skip


def different(one, other):
    nothing, named = object(), {"logging_dir"}  # it names the machine
    return {key: one.get(key) for key in one | other if key not in named and one.get(key, nothing) != other.get(key, nothing)}


def written(cls, cases, base, usual):
    """What the library writes and its values, of each case what is different from the first; null: nothing."""
    out = []
    for case in cases:
        if any(key not in cls.__dataclass_fields__ for key in case):
            continue
        try:
            made = Made(cls, case)
        except (ValueError, TypeError):  # not of this version
            continue
        out.append({"changes": different(json.loads(made.text), base), "expected": different(made.values(), usual)})
    return out


def write_fixtures(folder):
    """One file for a version of transformers; the cases of TRL's SFTConfig are in it, too."""
    default = Made(TrainingArguments, {})
    base, usual = different(json.loads(default.text), {}), default.values()
    cases = written(TrainingArguments, FIXTURES, base, usual) + (written(SFTConfig, SFT_FIXTURES, base, usual) if SFTConfig else [])
    compact = lambda value: json.dumps(value, separators=(",", ":"))  # noqa: E731
    lines = ",\n".join("  " + compact(case) for case in cases)
    versions = {"transformers": transformers.__version__, "trl": trl.__version__ if trl else None}
    file = folder / f"written_{'.'.join(transformers.__version__.split('.')[:2])}.json"
    file.write_text(f'{{\n "of": {compact(versions)},\n "base": {compact(base)},\n "expected": {compact(usual)},\n "cases": [\n{lines}\n ]\n}}\n')


if __name__ == "__main__":
    write_fixtures(Path(sys.argv[1]))
