"""What this program makes of a reference folder: `fsdp verify`, and `fsdp convert` there and back.

`judge` returns an Outcome: passed, refused (by name, and allowed to), or failed, with the quantity that is wrong.
"""

import json
import re
import subprocess
from dataclasses import dataclass

import adapters
import families
import torch
from safetensors import safe_open

LIMIT, TRAINED_LIMIT = 1e-9, 1e-6  # of one pass, of five steps
ROUNDING = 16 * 2**-52  # of the largest gradient: `fsdp verify` divides errors of a smaller tensor by the largest
NOISE = 1e-4  # a tensor whose gradient is that much smaller than the largest one is not held to more digits
REFUSED, PASSED, FAILED = "refused", "passed", "failed"


@dataclass
class Outcome:
    status: str
    what: str = ""  # the quantity, or the reason of a refusal
    detail: str = ""


def run(arguments):
    return subprocess.run([str(a) for a in arguments], capture_output=True, text=True, timeout=300)


def judge(fsdp, case, folder, gradients):
    outcome = judge_numbers(fsdp, case, folder, gradients)
    if outcome.status == PASSED and case["run"]["round_trip"] and "adapter" not in case:
        return judge_round_trip(fsdp, case, folder)
    return outcome


def judge_numbers(fsdp, case, folder, gradients):
    options = case["run"]
    done = run([fsdp, "verify", folder, "--dtype", "f64", "--trajectory", "--json", "--threads", 1, "--backend", "cpu",
                "--local-ranks", options["ranks"], "--strategy", options["strategy"]])  # fmt: skip
    if done.returncode < 0:
        return Outcome(FAILED, f"signal {-done.returncode}", done.stderr)
    try:
        report = json.loads(done.stdout)
    except ValueError:
        report = {"unsupported": done.stderr}
    if "unsupported" in report:
        return judge_refusal(case, folder, report["unsupported"])
    if report["left_out"]:
        return Outcome(FAILED, "left out", report["left_out"][0])
    for check in report["checks"]:
        worst = worst_error(check, gradients)
        if not worst[0] <= limit_of(check["name"]):
            return Outcome(FAILED, check["name"], f"{worst[1]}: {worst[0]:.2g}")
    return Outcome(PASSED)


def limit_of(name):
    if name.startswith("generation"):
        return 0
    return TRAINED_LIMIT if name.startswith(("loss of every", "gradient norm of", "final parameters")) else LIMIT


def worst_error(check, gradients):
    """The largest error and where. JSON has no infinity: null stands for it."""
    largest = max(gradients.values(), default=0)
    worst = (0.0, "")
    for part, error in check["errors"].items():
        error = float("inf") if error is None else error
        if check["name"] == "gradients" and gradients[part] > ROUNDING * largest:
            error *= gradients[part] / max(gradients[part], NOISE * largest)
        worst = max(worst, (error, part))
    return worst


def judge_refusal(case, folder, message):
    said = [line.removeprefix("fsdp: ").replace(f"{folder}/", "") for line in message.splitlines()]
    line = next((line for line in said if line and not line.startswith(("warning: ", "note: "))), "nothing said")
    of_adapter = "adapter_config.json: " in line
    refusable = adapters.REFUSABLE if of_adapter else families.REFUSABLE
    options = case.get("adapter", {}) if of_adapter else case["config"]
    for key in re.findall(r"(\w+): ", line):
        if key in refusable and refusable[key](options):
            return Outcome(REFUSED, re.sub(r"\d+(\.\d+)?", "N", line)[:110])
    return Outcome(FAILED, "refused", line)


# ---------------------------------------------------------------- round trips


def judge_round_trip(fsdp, case, folder):
    """To shards of a wider dtype and back: every byte. To another dtype: what torch rounds to."""
    stored = case["run"]["weights"]
    wide, back, narrow = folder / "wide", folder / "back", folder / "narrow"
    flags = {"F64": "f64", "F32": "f32", "BF16": "bf16"}
    for command in (
        ["convert", folder, wide, "--dtype", "f64", "--shards", 3],
        ["convert", wide, back, "--dtype", flags[stored], "--max-shard-size", "9KB", "--local-ranks", 2],
        ["convert", folder, narrow, "--dtype", "bf16"],
    ):
        done = run([fsdp, *command])
        if done.returncode != 0:
            return Outcome(FAILED, f"convert: status {done.returncode}", done.stderr.strip())
    before, after, rounded = read(folder), read(back), read(narrow)
    if before.keys() != after.keys() or before.keys() != rounded.keys():
        return Outcome(FAILED, "convert: names", str(sorted(before.keys() ^ after.keys())))
    for name, tensor in before.items():
        if tensor.dtype != after[name].dtype or not torch.equal(bits(tensor), bits(after[name])):
            return Outcome(FAILED, "convert: there and back", name)
        if not torch.equal(bits(tensor.to(torch.bfloat16)), bits(rounded[name])):
            return Outcome(FAILED, "convert: to bf16", name)
    return judge_config(folder, back)


def judge_config(folder, back):
    """The config that came back says the same, but for the dtype."""
    keys = [json.loads((place / "config.json").read_text()) for place in (folder, back)]
    for config in keys:
        for key in ("dtype", "torch_dtype", "architectures"):
            config.pop(key, None)
    return Outcome(PASSED) if keys[0] == keys[1] else Outcome(FAILED, "convert: config.json", str(keys[1]))


def bits(tensor):
    return tensor.contiguous().view(torch.uint8)


def read(folder):
    tensors = {}
    for path in sorted(folder.glob("model*.safetensors")):
        with safe_open(path, "pt") as file:
            tensors |= {name: file.get_tensor(name) for name in file.keys()}
    return tensors
