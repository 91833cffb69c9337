#!/usr/bin/env bash
# fsdp.offload: nvme: whole runs with the bits of one without it, across checkpoints; memory by place; a model
# whose state is three times the memory that it may take; what is left of a run that was killed; a disk
# that loses the file, may write no more, or fills up, in mid-run.
# Environment: FSDP the program, MPIRUN how to start processes (empty: no MPI).
# Requirements: S2.16.
source "$(dirname "$0")/../support/e2e.sh"
source "$SOURCE/tests/support/fixed_order.sh"
mkdir disk
nvme=(fsdp.offload=nvme fsdp.offload_folder=disk)

# ---- the same bits -------------------------------------------------------------------------------
text_and_config 12
run none 2
same none nvme 3 "${nvme[@]}"
same none replicas 4 "${nvme[@]}" fsdp.strategy=hybrid_shard fsdp.shard_size=2
same none whole 2 "${nvme[@]}" fsdp.strategy=no_shard
if [ -n "${MPIRUN:-}" ]; then
  use_mpi=1 same none processes 2 "${nvme[@]}"
else
  echo "[SKIP] nvme over MPI: no MPI"
fi
half=(train.dtype=bf16 train.reduce_dtype=bf16 train.stochastic_rounding=true)
run none_bf16 1 "${half[@]}"
same none_bf16 nvme_bf16 2 "${nvme[@]}" "${half[@]}" runtime.trace=true
for stream in from_file to_file state_in state_out; do
  grep -q "\"$stream\"" nvme_bf16/trace.rank0.json || fail "the timeline has no stream $stream"
done
[ -z "$(ls -A disk)" ] || fail "left on the disk: $(ls -A disk)"

# ---- across checkpoints --------------------------------------------------------------------------
run begun 2 "${nvme[@]}" train.steps=6 checkpoint.every=6 checkpoint.async=true train.schedule.total=12
"$FSDP" train --resume begun --local-ranks 2 --set train.steps=12 fsdp.offload=none >begun.log 2>&1 ||
  { fail "resume without offload: status $?"; cat begun.log; }
[ "$(result begun)" = "$(result none)" ] || fail "resumed: $(result begun), not $(result none)"
run_quietly kept 2 "${nvme[@]}" checkpoint.every=6 checkpoint.keep=0 || fail "kept: status $?"
"$FSDP" replay kept --step 8 --local-ranks 2 >replay.log 2>&1 || { fail "replay: status $?"; cat replay.log; }

# ---- memory by place -----------------------------------------------------------------------------
grep -q '^in its file$' nvme.log || fail "no table of the file: $(cat nvme.log)"
"$FSDP" explain --config config.yaml --world 2 --set "${nvme[@]}" >explain.log 2>&1 || fail "explain: $(cat explain.log)"
grep -q '  in its file: parameter shard' explain.log || fail "explain: no file"
if command -v python3 >/dev/null; then
  for run in nvme replicas whole nvme_bf16; do
    python3 - $run/metrics.json <<'PY' || fail "$run: its memory was not predicted"
import json, sys
memory = json.load(open(sys.argv[1]))["memory"]
for place in ("", "_on_host", "_in_file"):
    said = memory["predicted" + place]
    was = memory["ledger" + place]
    was["by_category"].pop("transport staging")
    assert said == was, (place, said, was)
file, host = memory["ledger_in_file"], memory["ledger_on_host"]
assert file["by_category"]["optimizer state"] == 2 * file["by_category"]["gradient"] > 0
PY
  done
  "$FSDP" memory --config config.yaml --world 2 --json >plain.json || fail "memory: status $?"
  "$FSDP" memory --config config.yaml --world 2 --json --set "${nvme[@]}" >there.json || fail "memory: status $?"
  python3 - <<'PY' || fail "memory: the place, and the alternative"
import json
plain, there = json.load(open("plain.json")), json.load(open("there.json"))
place = there["peak"]["by_place"]
assert plain["peak"]["by_place"]["file"] == 0 and place["file"] > 0
assert there["peak"]["total"] == place["device"] + place["host"]
offered = {each["change"]: each["bytes"] for each in plain["alternatives"]}
assert offered["fsdp.offload=nvme fsdp.offload_folder=."] == place["device"] + place["host"]
PY
else
  echo "[SKIP] nvme: memory by place: no python3"
fi

# ---- a state of three times the memory -------------------------------------------------------------
cat >large.yaml <<'YAML'
model: {model_type: gpt2, hidden_size: 128, layers: 48, heads: 4, vocab_size: 257, max_positions: 64}
data: {train: text.txt, sequence_length: 32}
train: {steps: 3, batch: 2, log_every: 1, lr: 1e-3, save: false, recompute: {mode: full}}
YAML
limit=$((36 * 1024 * 1024))
large_run=("$FSDP" train --config large.yaml --local-ranks 1 --threads 1 --set)
large() { "${large_run[@]}" "$@"; }
large runtime.run_dir=refused --memory-limit $limit >refused.log 2>&1; status=$?
[ $status = 12 ] || fail "without offload it fits: status $status"
grep -q 'fits with .*--set fsdp.offload=nvme --set fsdp.offload_folder=\.' refused.log || fail "nvme is not offered: $(cat refused.log)"
large runtime.run_dir=large "${nvme[@]}" --memory-limit $limit >large.log 2>&1 || { fail "large: status $?"; cat large.log; }
large runtime.run_dir=roomy >roomy.log 2>&1 || fail "roomy: status $?"
for key in weights_hash optimizer_hash; do
  [ "$(summary large $key)" = "$(summary roomy $key)" ] || fail "large: another $key"
done
! command -v python3 >/dev/null || python3 - $limit <<'PY' || fail "large: its memory"
import json, sys
limit, run = int(sys.argv[1]), json.load(open("large/metrics.json"))
file = run["memory"]["ledger_in_file"]["by_category"]
state = file["parameter shard"] + file["optimizer state"]
assert state >= 3 * limit, (state, limit)
# What the system counts: the limit and the program's own, which is less than 32 MiB.
assert run["rss_growth_bytes"] < limit + (32 << 20) < state, run["rss_growth_bytes"]
PY

# ---- killed --------------------------------------------------------------------------------------
"${large_run[@]}" runtime.run_dir=killed "${nvme[@]}" train.steps=1000 >killed.log 2>&1 &
pid=$!
for i in {1..100}; do grep -qs '"step":2' killed/metrics.jsonl && break; sleep 0.1; done
fd=$(ls -l /proc/$pid/fd | grep "$PWD/disk" | head -1)
[[ $fd == *deleted* ]] || fail "the state has a name: $fd"
[ -z "$(ls -A disk)" ] || fail "a name on the disk while it runs: $(ls -A disk)"
kill -9 $pid; { wait $pid; } 2>/dev/null
[ -z "$(ls -A disk)" ] || fail "left by a killed run: $(ls -A disk)"

# ---- what is wrong with the folder -----------------------------------------------------------------
large fsdp.offload=nvme >no_folder.log 2>&1 && fail "accepted: no folder"
grep -q 'fsdp.offload: nvme: expected fsdp.offload_folder' no_folder.log || fail "no folder: $(cat no_folder.log)"
large fsdp.offload=nvme fsdp.offload_folder=missing >missing.log 2>&1 && fail "accepted: a missing folder"
grep -q 'fsdp.offload_folder: missing: expected an existing folder' missing.log || fail "missing: $(cat missing.log)"

# ---- a disk in mid-run -----------------------------------------------------------------------------
state_of() { ls -l /proc/$1/fd 2>/dev/null | sed -n "s|.* \([0-9]*\) -> $PWD/$2/.*|/proc/$1/fd/\1|p" | head -1; }
# in_mid_run RUN FOLDER EXPECTED COMMAND...: with the path of a rank's state while the run is under way. The run
# ends with an error, on every rank, and its last checkpoint is whole
in_mid_run() {
  local run=$1 folder=$2 expected=$3 pid newest state; shift 3
  "${start[@]}" train --config large.yaml --threads 1 --set runtime.run_dir=$run fsdp.offload=nvme fsdp.offload_folder=$folder \
    train.steps=1000 checkpoint.every=2 checkpoint.keep=2 >$run.log 2>&1 &
  pid=$!
  until [ -e $run/checkpoints/step-2 ]; do
    kill -0 $pid 2>/dev/null || { fail "$run: ended before its first checkpoint: $(tail -3 $run.log)"; return; }
    sleep 0.1
  done
  for each in $(ls /proc | grep '^[0-9]*$'); do  # under mpirun a rank is another process
    state=$(state_of $each $folder)
    [ -z "$state" ] || break
  done
  "$@" "$state" || fail "$run: $* $state"
  for i in {1..1200}; do kill -0 $pid 2>/dev/null || break; sleep 0.1; done
  kill -9 $pid 2>/dev/null && fail "$run: goes on"
  wait $pid 2>/dev/null && fail "$run: status 0"
  newest=$(ls -d $run/checkpoints/step-* | grep -v tmp | sort -t- -k2 -n | tail -1)
  "$FSDP" inspect "$newest" >inspect.log 2>&1 || { fail "$run: $newest is damaged"; cat inspect.log; }
  grep -q "^fsdp: .*$folder: the state of rank [01] .* without a name): expected to $expected" $run.log ||
    fail "$run: no line that says why: $(tail -3 $run.log)"
}
resumed() {
  local last
  last=$(ls $1/checkpoints | grep -v tmp | sed 's/step-//' | sort -n | tail -1)
  "$FSDP" train --resume $1 --local-ranks 1 --set train.steps=$((last + 2)) fsdp.offload_folder=disk >resumed.log 2>&1 ||
    { fail "$1: resumed: status $?"; cat resumed.log; }
}
# Without root: somebody cuts the file, or its last block is beyond the size that the process may write.
cut() { truncate -s 0 "$1"; }
limit_size() {
  local pid=${1#/proc/}
  prlimit --pid ${pid%%/*} --fsize=$(($(stat -L -c %s "$1") - 4096))
}
start=("$FSDP")
in_mid_run lost disk 'read .* bytes at byte .*: the file ends before them' cut
in_mid_run limited disk 'write .* bytes at byte .*: File too large' limit_size
resumed limited
if [ -n "${MPIRUN:-}" ]; then
  start=($MPIRUN -n 2 "$FSDP")
  in_mid_run of_two disk 'write .* bytes at byte .*: File too large' limit_size
  resumed of_two
fi

mkdir small
if ! mount -t tmpfs -o size=16m tmpfs small 2>/dev/null; then
  echo "[SKIP] full disk: no file system may be mounted here"
  [ "$failed" = 0 ] && echo "nvme: all is well"
  exit "$failed"
fi
trap 'umount "$scratch/small"; rm -rf "$scratch"' EXIT
large runtime.run_dir=tight fsdp.offload=nvme fsdp.offload_folder=small >tight.log 2>&1 && fail "tight: status 0"
grep -q '^fsdp: .*fsdp.offload_folder: small: .* are free, the state of 1 rank needs' tight.log || fail "tight: $(cat tight.log)"
mount -o remount,size=200m small
# Somebody takes its room: nothing can be written where it was.
take_room() { fallocate -p -o 0 -l 200M "$1" && { head -c 300M /dev/zero >small/filler 2>/dev/null; true; }; }
start=("$FSDP")
in_mid_run full small 'write .* bytes at byte .*: No space left on device' take_room
rm -f small/filler
resumed full

[ "$failed" = 0 ] && echo "nvme: all is well"
exit "$failed"
