#!/usr/bin/env bash
# fsdp train under mpirun: the same command twice gives the same bits; 1, 2 and 3 processes agree
# with each other and with threads.
# Requirements: S2.13.
# Environment: FSDP the program, SOURCE the repository, MPIRUN how to start processes (empty: no MPI).
set -uo pipefail
if [ -z "${MPIRUN:-}" ]; then
  echo "[SKIP] train under mpirun: no MPI"
  exit 77
fi
source "$(dirname "$0")/../support/e2e.sh"

head -400 "$SOURCE/tools/data/chess/train.jsonl" >train.jsonl
head -12 "$SOURCE/tools/data/chess/validation.jsonl" >validation.jsonl
# 17 rows of 48 do not divide by anything; nor do 35 hidden units by 2 or 3 ranks.
cat >config.yaml <<'YAML'
model: {model_type: llama, hidden_size: 36, layers: 3, heads: 3, ffn: 70}
data: {train: train.jsonl, validation: validation.jsonl, sequence_length: 48}
train: {steps: 20, batch: 7, lr: 3e-3, log_every: 1, schedule: {kind: constant, warmup: 2}}
YAML

# train RUN_DIR launcher...
train() {
  local directory=$1; shift
  "$@" --set "runtime.run_dir=$directory" >"$directory.log" 2>&1 ||
    { fail "$* ended with $?"; cat "$directory.log"; }
}
program=("$FSDP" train --config config.yaml)
for ranks in 1 2 3; do train "mpi$ranks" $MPIRUN -n $ranks "${program[@]}"; done
train again $MPIRUN -n 2 "${program[@]}"
train ddp $MPIRUN -n 2 "${program[@]}" --set fsdp.strategy=no_shard
train unshared $MPIRUN -n 2 "${program[@]}" --set runtime.shared_memory=false
train threads "${program[@]}" --local-ranks 2

# numbers RUN_DIR: everything in metrics.jsonl that must be reproducible
numbers() { grep -o '"\(loss\|grad_norm\|validation_loss\|learning_rate\)":[^,}]*' "$1/metrics.jsonl"; }
[ "$(numbers mpi2 | wc -l)" = 61 ] || fail "expected 20 x 3 + 1 numbers, got $(numbers mpi2 | wc -l)"

# ---- the same bits -------------------------------------------------------------------------------
for other in again threads unshared; do
  cmp -s <(numbers mpi2) <(numbers $other) || fail "metrics of mpi2 and $other differ"
  cmp -s mpi2/model/model.safetensors $other/model/model.safetensors ||
    fail "the weights of mpi2 and $other differ"
done

# ---- who speaks ----------------------------------------------------------------------------------
# A process of each rank writes to a file of its own: rank 0 its run, each other one line.
# shellcheck disable=SC2016  # of the inner shell
$MPIRUN -n 4 bash -c '"$0" "$@" >said.${OMPI_COMM_WORLD_RANK:-$PMI_RANK}' "${program[@]}" \
  --set runtime.run_dir=spoken train.steps=1 2>spoken.err || { fail "four ranks: $?"; cat spoken.err; }
for rank in 1 2 3; do
  grep -qE "^rank $rank on [^ ]+: (CPU, [0-9]+ threads?|GPU [0-9]+), process [0-9]+\$" said.$rank &&
    [ "$(wc -l <said.$rank)" = 1 ] || fail "rank $rank says: $(cat said.$rank)"
done
[ "$(wc -l <said.0)" -gt 5 ] || fail "rank 0 says: $(cat said.0)"

# ---- within rounding -----------------------------------------------------------------------------
# weights RUN_DIR: a number a line
weights() {
  local file=$1/model/model.safetensors header
  header=$(od -An -N8 -t u8 "$file" | tr -d ' ')
  od -An -v -w4 -t f4 -j $((8 + header)) "$file"
}
for other in mpi2 mpi3 ddp; do
  paste <(numbers mpi1 | cut -d: -f2) <(numbers $other | cut -d: -f2) |
    awk '{ d = $1 - $2; if (d < 0) d = -d; r = $1 > 0 ? d / $1 : d; if (r > m) m = r }
         END { printf "losses and norms: %.1e\n", m; exit !(m <= 1e-5) }' ||
    fail "mpi1 and $other differ by more than 1e-5"
  paste <(weights mpi1) <(weights $other) |
    awk '{ d = $1 - $2; s += d * d; t += $1 * $1 }
         END { printf "weights: %.1e\n", sqrt(s / t); exit !(NR > 40000 && s <= 1e-10 * t) }' ||
    fail "the weights of mpi1 and $other differ by more than 1e-5"
done
awk -v a="$(numbers mpi1 | grep '"loss' | head -1 | cut -d: -f2)" \
  -v b="$(numbers mpi1 | grep '"loss' | tail -1 | cut -d: -f2)" 'BEGIN { exit !(b < 0.8 * a) }' ||
  fail "the loss did not fall by 20 %"

# ---- memory: what the ledger counts is what the process grows by ---------------------------------
# Without memory that other ranks read directly, which would count as theirs, too.
train memory $MPIRUN -n 2 "${program[@]}" --set runtime.shared_memory=false \
  --set model.hidden_size=384 --set model.heads=6 --set model.layers=4 --set model.ffn=1536 \
  --set train.steps=3 --set train.schedule.warmup=0
grep '^  this process' memory.log | grep -o '[0-9]*\.[0-9]*' | tr '\n' ' ' |
  awk '{ exit !($1 > 90 && $2 > 0.95 * $1 && $2 <= 1.05 * $1 + 24) }' ||
  fail "RSS grew by more than the ledger, 5 % and 24 MiB: $(grep '^  this process' memory.log)"

[ "$failed" = 0 ] && echo "train under mpirun: all is well"
exit "$failed"
