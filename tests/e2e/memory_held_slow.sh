#!/usr/bin/env bash
# What a run holds is never more than what was predicted for it: random small runs, with rows of many lengths, LoRA,
# offload, several evaluations and micro-steps, on 1 to 4 ranks. Where neither rows nor the family make a batch smaller
# than it was taken to be, both are equal.
# Environment: FSDP the program, CASES how many (60), SEED of the configurations.
source "$(dirname "$0")/../support/e2e.sh"

cat >draw.py <<'PY'
import json, random, subprocess, sys

program, cases, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
draw = random.Random(seed)
words = "a row of words that is as long as it happens to be and no longer".split()
with open("stream.txt", "w") as out:
    for i in range(3000):
        out.write(f"a line of text, number {i}, of a text that has enough for any batch\n")
with open("rows.txt", "w") as out:
    for i in range(900):
        out.write(f"{i} " + " ".join(draw.choices(words, k=draw.randint(1, 24))) + "\n")

def train(folder, ranks, settings):
    subprocess.run(["rm", "-rf", folder], check=True)
    flags = [f"{key}={value}" for key, value in settings.items()]
    return subprocess.run([program, "train", "--threads", "1", "--local-ranks", str(ranks), "--set",
                           f"runtime.run_dir={folder}", *flags], capture_output=True, text=True)

def model(family, hidden, layers):
    return {"model.model_type": family, "model.heads": 4, "model.hidden_size": hidden, "model.layers": layers}

base = train("base", 1, {**model("llama", 64, 3), "data.train": "stream.txt", "data.sequence_length": 128,
                         "train.steps": 1, "train.batch": 2})
assert base.returncode == 0, base.stderr

def configuration():
    ranks = draw.randint(1, 4)
    out = {"train.steps": draw.randint(1, 9), "data.sequence_length": draw.choice([32, 64, 100, 128])}
    if draw.random() < 0.25:
        out |= {"model.path": "base/model", "lora.r": 4, "lora.targets": draw.choice(["[q_proj,v_proj]", "all-linear"])}
    else:
        out |= model(draw.choice(["llama", "gpt2", "qwen2", "bloom", "gpt_neox", "mistral"]),
                     draw.choice([32, 64, 96, 128]), draw.choice([2, 3, 5]))
    rows = draw.random() < 0.4
    out |= {"data.train": "rows.txt" if rows else "stream.txt"}
    if rows:
        out |= {"data.pack": "examples"}
    if rows and draw.random() < 0.8:
        out |= {"data.pad_to": "longest"}
    if draw.random() < 0.6:
        out |= {"data.validation": out["data.train"], "train.eval_batches": draw.randint(1, 7),
                "train.eval_every": draw.randint(0, 4)}
    micro = draw.choice([1, 1, 2, 3, 4, 7])
    batch = ranks * micro * draw.choice([1, 2, 3]) + draw.choice([0, 0, 1, 2])
    out |= {"train.micro_steps": micro, "train.batch": batch}
    out |= {"train.recompute.mode": draw.choice(["none", "none", "selective", "full", "offload"])}
    out |= {"train.dtype": draw.choice(["f32", "f32", "bf16", "f16"])}
    strategy = draw.choice(["full_shard", "full_shard", "shard_grad_op", "shard_optimizer", "no_shard"])
    out |= {"fsdp.strategy": strategy, "fsdp.release_arena": draw.choice(["false", "false", "true"])}
    offload = draw.choice(["none", "none", "optimizer", "all", "nvme"])
    if offload != "none":
        out |= {"fsdp.offload": offload} | ({"fsdp.offload_folder": "."} if offload == "nvme" else {})
    if draw.random() < 0.2:
        out |= {"checkpoint.every": 2, "checkpoint.async": "true"}
    return ranks, out

trained = equal = failed = drawn = 0
while trained < cases and drawn < 4 * cases:
    drawn += 1
    ranks, settings = configuration()
    run = train("run", ranks, settings)
    what = f"{ranks} ranks: " + " ".join(f"{k}={v}" for k, v in settings.items())
    if run.returncode != 0:
        if run.returncode in (2, 78):  # options that do not go together
            continue
        failed += 1
        print(f"FAILED: status {run.returncode}: {what}\n{run.stdout[-500:]}{run.stderr[-1500:]}")
        continue
    trained += 1
    memory = json.load(open("run/metrics.json"))["memory"]
    both = [(memory["predicted" + p]["in_all"], memory["ledger" + p]["in_all"]) for p in ("", "_on_host", "_in_file")]
    equal += all(said == was for said, was in both)
    if any(said < was for said, was in both):
        failed += 1
        print(f"FAILED: predicted and held (device, host, file): {both}: {what}")
print(f"{trained} runs of {drawn} drawn: {equal} held what was predicted, to the byte; {failed} failed")
sys.exit(1 if failed or trained < cases else 0)
PY
python3 draw.py "$FSDP" "${CASES:-60}" "${SEED:-1}" || fail "a run held more than was predicted, or ended"
exit "$failed"
