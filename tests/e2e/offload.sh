#!/usr/bin/env bash
# fsdp.offload: whole runs with the bits of one without it, under other names of the key, over processes, across
# checkpoints; what a run and `fsdp memory` say of the two places. fsdp.update_in_backward: the same.
# Environment: FSDP the program, MPIRUN how to start processes (empty: no MPI).
source "$(dirname "$0")/../support/e2e.sh"
source "$SOURCE/tests/support/fixed_order.sh"

text_and_config 12
run none 2
same none optimizer 3 fsdp.offload=optimizer
same none all 1 fsdp.offload=all
same none replicas 4 fsdp.cpu_offload=true fsdp.strategy=hybrid_shard fsdp.shard_size=2
same none whole 2 fsdp.fsdp_offload_params=true fsdp.strategy=no_shard
same none off 2 fsdp.cpu_offload=false
if [ -n "${MPIRUN:-}" ]; then
  use_mpi=1 same none processes 2 fsdp.offload=all
else
  echo "[SKIP] offload over MPI: no MPI"
fi
same none inputs 2 train.recompute.mode=offload
same none inputs_of_some 3 train.recompute.mode=offload train.recompute.every=2 fsdp.offload=all
for dtype in bf16 f16; do
  half=(train.dtype=$dtype train.reduce_dtype=$dtype)
  [ $dtype = bf16 ] && half+=(train.stochastic_rounding=true)
  run none_$dtype 1 "${half[@]}"
  same none_$dtype all_$dtype 2 fsdp.offload=all "${half[@]}"
  same none_$dtype optimizer_$dtype 3 fsdp.offload=optimizer runtime.trace=true "${half[@]}"
  same none_$dtype inputs_$dtype 2 train.recompute.mode=offload runtime.trace=true "${half[@]}"
done
for stream in to_host from_host host; do
  grep -q "\"$stream\"" optimizer_bf16/trace.rank0.json || fail "the timeline has no stream $stream"
done
for stream in inputs_out inputs_in; do
  grep -q "\"$stream\"" inputs_bf16/trace.rank0.json || fail "the timeline has no stream $stream"
done

# ---- updates in backward -------------------------------------------------------------------------
free=(train.clip_norm=0 train.rows_per_pass=6)
run after 2 "${free[@]}"
same after before 2 "${free[@]}" fsdp.update_in_backward=true runtime.trace=true
same after before_all 2 "${free[@]}" fsdp.update_in_backward=true fsdp.offload=all
same after before_nvme 2 "${free[@]}" fsdp.update_in_backward=true fsdp.offload=nvme fsdp.offload_folder=.
same after before_alone 1 "${free[@]}" fsdp.update_in_backward=true fsdp.offload=optimizer
# refused WHAT key=value...
refused() {
  local what=$1; shift
  run_quietly refused 2 fsdp.update_in_backward=true "$@" && fail "accepted: $*"
  grep -q "fsdp.update_in_backward: a unit is updated before the gradients of all are there; expected $what" refused.log ||
    fail "$*: $(cat refused.log)"
}
refused 'train.clip_norm: 0'
refused 'train.spike.factor: 0' train.clip_norm=0 train.spike.factor=2
refused 'no loss scaling' train.clip_norm=0 train.dtype=f16 train.reduce_dtype=f16
refused 'checkpoint.unit_hashes: false' train.clip_norm=0 checkpoint.unit_hashes=true checkpoint.every=6

# ---- across checkpoints --------------------------------------------------------------------------
run begun 2 fsdp.offload=all train.steps=6 checkpoint.every=6 checkpoint.async=true train.schedule.total=12
"$FSDP" train --resume begun --local-ranks 2 --set train.steps=12 fsdp.offload=optimizer >begun.log 2>&1 ||
  { fail "resume under another offload: status $?"; cat begun.log; }
[ "$(result begun)" = "$(result none)" ] || fail "resumed: $(result begun), not $(result none)"
diff <(lines begun) <(lines none) >lines.diff || { fail "resumed: other lines"; head -4 lines.diff; }

# ---- memory by place -----------------------------------------------------------------------------
grep -q '^on the host$' all.log || fail "all: no table of the host's memory: $(cat all.log)"
grep -q '^on the host$' none.log && fail "none: a table of the host's memory"
command -v python3 >/dev/null || echo "[SKIP] offload: memory by place: no python3"
for run in all optimizer replicas whole before_all before_alone all_f16 inputs inputs_of_some inputs_f16; do
  command -v python3 >/dev/null || break
  python3 - $run/metrics.json <<'PY' || fail "$run: its memory was not predicted"
import json, sys
memory = json.load(open(sys.argv[1]))["memory"]
for place in ("", "_on_host"):
    said, was = memory["predicted" + place], memory["ledger" + place]
    was["by_category"].pop("transport staging")
    assert said == was, (place, said, was)
of_inputs = sys.argv[1].startswith("inputs")
assert memory["ledger_on_host"]["by_category"]["activation" if of_inputs else "optimizer state"] > 0
PY
done
memory() { "$FSDP" memory --config config.yaml --world 4 --json "$@"; }
memory --gpu A100-80 --set train.dtype=bf16 >gpu.json || fail "memory: status $?"
memory --gpu A100-80 --set train.dtype=bf16 fsdp.offload=optimizer >gpu_offload.json || fail "memory: status $?"
! command -v python3 >/dev/null || python3 - <<'PY' || fail "memory: places and alternatives"
import json
plain, offloaded = json.load(open("gpu.json")), json.load(open("gpu_offload.json"))
place = offloaded["peak"]["by_place"]
assert plain["peak"]["by_place"]["host"] == 0 and place["host"] > 0, place
assert offloaded["peak"]["total"] == place["device"] + place["host"]
assert place["device"] < plain["peak"]["by_place"]["device"]
offered = {each["change"]: each["bytes"] for each in plain["alternatives"]}
assert offered["fsdp.offload=optimizer"] == place["device"]
assert offered["fsdp.offload=all"] < offered["fsdp.offload=optimizer"]
PY
"$FSDP" train --config config.yaml --local-ranks 1 --set fsdp.offload=tape >refused.log 2>&1 && fail "accepted: tape"
grep -q 'fsdp.offload: expected one of none, optimizer, all, nvme' refused.log || fail "tape: $(cat refused.log)"

[ "$failed" = 0 ] && echo "offload: all is well"
exit "$failed"
