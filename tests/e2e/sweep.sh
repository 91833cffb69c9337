#!/usr/bin/env bash
# fsdp sweep: cases as rows of a table; a case that fails or does not fit is one, too; a sweep that was broken off
# goes on; mistakes are found before anything runs. fsdp compare has the same columns.
# Environment: FSDP the program.
# Requirements: S0.8, S1.16, S1.18, S2.1, S3.10.
source "$(dirname "$0")/../support/e2e.sh"

cat >base.yaml <<'YAML'
model: {model_type: llama, hidden_size: 32, layers: 2, heads: 2, vocab_size: 64}
data: {format: synthetic, synthetic_rows: 64, sequence_length: 16}
train: {steps: 2, batch: 4, log_every: 1, save: false}
runtime: {threads: 1}
YAML
# cell FOLDER CASE COLUMN: of table.csv, where a name with a comma is quoted
cell() {
  sed 's/"\([^",]*\),\([^"]*\)"/\1;\2/' "$1/table.csv" | awk -F, -v name="${2/,/;}" -v head="$3" \
    'NR == 1 { for (i = 1; i <= NF; ++i) if ($i == head) at = i } $1 == name { print $at }'
}
sweep() { "$FSDP" sweep "$@" >out 2>err; }

# ---- one rank, DDP, FSDP; the batch doubled until it does not fit; a run that fails ------------------
cat >recipe.yaml <<'YAML'
question: What does FSDP save beside DDP?
include: base.yaml
repeat: 2
cases:
  one: {fsdp.strategy: no_shard}
  ddp: {ranks: 2, fsdp.strategy: no_shard}
  fsdp: {ranks: 2}
  weak: {ranks: 2, train.batch: 8}
  crowded: {ranks: 9}
  large: {train.batch: 64, runtime.memory_limit: 1MiB}
  bad: {train.lr: 1e30, train.steps: 4}
columns: [s_per_step, tokens_per_s, speed_up, efficiency, weak_efficiency, peak_memory, peak_predicted, train_loss,
  full_size_peak]
full_size: {set: {model.layers: 4}}
YAML
sed -i "s/ranks: 9/ranks: $(($(nproc) + 1))/" recipe.yaml
sweep recipe.yaml --dry-run || fail "--dry-run: $(cat err)"
grep -qE '^large  *1  *[0-9.]+  *0.00  *0.00  *no ' out && grep -q '^large: this run needs' out || fail "dry run: $(cat out)"
[ ! -e runs ] || fail "a dry run has made a folder"
sweep recipe.yaml --out o; status=$?
[ $status = 1 ] || fail "a case has failed, the status is $status: $(cat out err)"
for column in s_per_step tokens_per_s speed_up efficiency peak_memory peak_predicted full_size_peak; do
  [ -n "$(cell o fsdp $column)" ] || fail "fsdp has no $column"
done
# The median of two runs relative to itself is 1 but for rounding.
awk -v it="$(cell o one speed_up)" 'BEGIN { exit !(it > 0.999 && it < 1.001) }' && [ "$(cell o ddp weak_efficiency)" = "" ] && [ -n "$(cell o weak weak_efficiency)" ] ||
  fail "relative columns: $(cat o/table.csv)"
[ "$(cell o ddp peak_memory)" = "$(cell o ddp peak_predicted)" ] || fail "memory: $(cat o/table.csv)"
[ "$(cell o crowded status)" = oversubscribed ] && [ -z "$(cell o crowded speed_up)" ] || fail "crowded: $(cat o/table.csv)"
[ "$(cell o large status)" = refused ] && grep -q '^- large: refused: this run needs .*; fits with --set' o/table.md ||
  fail "a refusal: $(cat o/table.md)"
[ "$(cell o bad status)" = failed ] && grep -q '^- bad: failed: status 76: step .*o/bad/run1.log' o/table.md ||
  fail "a failure: $(cat o/table.md)"
[ "$(ls -d o/one/run? | wc -l)" = 2 ] && [ ! -e o/bad/run2 ] || fail "runs: $(ls o/*)"
"$FSDP" compare o/one/run1 o/fsdp/run1 o/ddp/run1 --columns ranks,speed_up 2>err && fail "compare took a column that is none"
"$FSDP" compare o/one/run1 o/fsdp/run1 --columns speed_up,/memory/ledger/total --markdown >out &&
  grep -q '^| o/fsdp/run1 |' out || fail "compare: $(cat out)"

# ---- the batch doubled until it does not fit, without recompute and with it ----------------------------
sweep base.yaml --set train.recompute.mode=none,full train.batch=32,64 runtime.memory_limit=4500000 --out d ||
  fail "a refusal alone is no failure: $(cat out err)"
for each in none,batch=32:ran none,batch=64:refused full,batch=32:ran full,batch=64:ran; do
  [ "$(cell d mode=${each%:*} status)" = ${each#*:} ] || fail "the largest batch: $each: $(cat d/table.csv)"
done

# ---- a configuration and commas: Hydra's sweep; broken off, and going on ------------------------------
grid=(base.yaml --set train.lr=1e-4,3e-4 train.seed=1,2 train.steps=100000 data.synthetic_rows=400000 --out g)
"$FSDP" sweep "${grid[@]}" >out 2>err &
for ((i = 0; i < 1200; ++i)); do [ -s g/lr=1e-4,seed=1/run1/metrics.jsonl ] && break; sleep 0.05; done
[ -s g/lr=1e-4,seed=1/run1/metrics.jsonl ] || fail "no step within a minute: $(cat out err g/lr=1e-4,seed=1/run1.log)"
kill -TERM $!
wait $!; status=$?
[ $status = 143 ] || fail "a sweep that was asked to end: status $status: $(cat out err)"
[ "$(cell g lr=1e-4,seed=1 status)" = open ] || fail "broken off: $(cat g/table.csv)"
ls g/lr=1e-4,seed=1/run1/checkpoints* >/dev/null 2>&1 || fail "broken off without a checkpoint: $(ls g/lr=1e-4,seed=1/run1)"
sweep "${grid[@]/100000/2}" && fail "a changed case was taken"
grep -q 'case lr=1e-4,seed=1: train.steps was 100000, and is 2 now' err || fail "a changed case: $(cat err)"

grid=(base.yaml --set train.lr=1e-4,3e-4 train.seed=1,2 --out h)
"$FSDP" sweep "${grid[@]}" >out 2>err &
for ((i = 0; i < 200; ++i)); do [ -s h/lr=1e-4,seed=1/run1/metrics.json ] && break; sleep 0.02; done
kill -KILL $!
wait $! 2>/dev/null
sweep "${grid[@]}" || fail "going on: $(cat out err)"
for each in lr=1e-4,seed=1 lr=1e-4,seed=2 lr=3e-4,seed=1 lr=3e-4,seed=2; do
  [ "$(cell h $each status)" = ran ] || fail "going on: $each: $(cat h/table.csv)"
  lr=${each#lr=} lr=${lr%,*} seed=${each##*=}
  grep -q "^  seed: $seed\$" h/$each/case.yaml && grep -q "^  lr: ${lr/1e-4/0.0001}\$\|^  lr: ${lr/3e-4/0.0003}\$" h/$each/case.yaml ||
    fail "the configuration of $each: $(grep -E '^  (seed|lr):' h/$each/case.yaml)"
done
[ "$(grep -c '"status": "ran"' h/table.json)" = 4 ] || fail "table.json: $(cat h/table.json)"
grep -q '^[1-4]/[1-4] lr=.*: s/step ' out || fail "a line for each run: $(cat out)"

# ---- mistakes ------------------------------------------------------------------------------------
check() {
  local expected=$1; shift
  "$FSDP" sweep "$@" >out 2>err; local status=$?
  [ $status = 78 ] && [ "$(grep -c '^fsdp: ' err)" = 1 ] && grep -qE "$expected" err || fail "no '$expected' (status $status): $(cat err)"
}
check "^fsdp: --set train.lr=1,x: train.lr: expected a .*\(case lr=x\)\$" base.yaml --set train.lr=1,x --out m
echo 'grid: {a: [1]}' >wrong.yaml
check '^fsdp: wrong.yaml: question: expected' wrong.yaml --out m
check 'missing.yaml' missing.yaml --out m
check '^fsdp: --hosts: only mpirun' base.yaml --with local --hosts a:4 --out m
check '^fsdp: --hosts: has 1 rank, and case ranks=2 needs 2' base.yaml --set ranks=1,2 --with mpirun --hosts a:1 --dry-run
check 'train.seed was 42, and is 1 now' recipe.yaml --set train.seed=1 --out o --dry-run
[ ! -e m ] || fail "a sweep that was refused has made a folder"

[ "$failed" = 0 ] && echo "sweep: all is well"
exit "$failed"
