#!/usr/bin/env bash
# The smallest model of fairseq's guide, transformer_lm_gpt3_small at its full size, by the guide's own options
# with --cpu-offload, end to end: adopted, trained and evaluated on two ranks, with the bits of a run without
# offload, its memory of each place as predicted, and less of it on the device. Prints a table.
# Environment: FSDP the program, SOURCE the repository.
source "$(dirname "$0")/../support/e2e.sh"
command -v python3 >/dev/null || { echo "[SKIP] gpt3_small: no python3"; exit 0; }

"$FSDP" adopt fairseq -- fairseq-train "$SOURCE/tools/recipes/fairseq-13b" \
  --ddp-backend fully_sharded --fp16 --fp16-init-scale 4 --cpu-offload --checkpoint-activations \
  --task language_modeling --tokens-per-sample 64 --batch-size 1 --arch transformer_lm_gpt3_small \
  --optimizer cpu_adam --adam-betas '(0.9,0.98)' --lr 0.0001 --lr-scheduler polynomial_decay \
  --warmup-updates 2 --total-num-update 10 --max-update 3 --no-save --log-format json --log-interval 1 \
  >config.yaml 2>err || fail "adopt: $(cat err)"
grep -q '^  offload: all ' config.yaml || fail "adopted without offload"
for offload in none optimizer all nvme; do
  "$FSDP" train --config config.yaml --local-ranks 2 --threads 1 --set runtime.run_dir=$offload fsdp.offload=$offload \
    train.eval_batches=2 $([ $offload = nvme ] && echo fsdp.offload_folder=.) >$offload.log 2>&1 ||
    { fail "$offload: status $?"; tail -3 $offload.log; }
done
python3 - <<'PY' || fail "other results, or other memory than predicted"
import json
runs = {name: json.load(open(f"{name}/metrics.json")) for name in ("none", "optimizer", "all", "nvme")}
print(f"{'offload':<10}{'device MiB':>12}{'host MiB':>10}{'file MiB':>10}{'s/step':>8}{'practicality':>14}")
for name, run in runs.items():
    assert run["weights_hash"] == runs["none"]["weights_hash"], name
    assert run["optimizer_hash"] == runs["none"]["optimizer_hash"], name
    memory, row = run["memory"], []
    for place in ("", "_on_host", "_in_file"):
        said, was = memory.get("predicted" + place), memory.get("ledger" + place)
        if was is None:
            row.append(0)
            continue
        was["by_category"].pop("transport staging", None)
        said["by_category"].pop("transport staging", None)
        assert said["by_category"] == was["by_category"], (name, place, said, was)
        row.append(sum(was["by_category"].values()) / 2**20)
    seconds = run["step_time_s"] / run["steps"]
    base = runs["none"]["step_time_s"] / runs["none"]["steps"]
    print(f"{name:<10}{row[0]:>12.0f}{row[1]:>10.0f}{row[2]:>10.0f}{seconds:>8.2f}{base / seconds:>14.2f}")
    run["device"] = row[0]
assert runs["all"]["device"] < runs["optimizer"]["device"] < runs["none"]["device"]
PY
[ "$failed" = 0 ] && echo "gpt3_small: all is well"
exit "$failed"
