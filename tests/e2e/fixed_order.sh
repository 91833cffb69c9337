#!/usr/bin/env bash
# fsdp.fixed_order: the same weights, optimizer state, losses and norms on any number of ranks and
# under every strategy, also of a run that goes on on other ranks; how train.batch, rows_per_pass and
# micro_steps go together; what is refused. The whole cross: fixed_order_slow.sh.
# Environment: FSDP the program, MPIRUN how to start processes (empty: no MPI).
source "$(dirname "$0")/../support/e2e.sh"
source "$SOURCE/tests/support/fixed_order.sh"

text_and_config 12
run one 1
[ "$(summary one weights_hash)" != "$(summary one optimizer_hash)" ] || fail "one: no hashes"
grep -q '^effective batch 12 = 12 rows x 1 rank x 1 micro-step$' one.log && fail "one: one pass"
grep -q '^effective batch 12 = 1 row x 1 rank x 12 micro-steps$' one.log || { fail "one: batch"; cat one.log; }
same one two 2 fsdp.strategy=no_shard
same one four 4 fsdp.strategy=hybrid_shard fsdp.shard_size=2
same one five 5
grep -q '^effective batch 12 = 12 passes of 1 row on 5 ranks x 3 micro-steps; 3 ranks without a pass in the last one$' \
  five.log || { fail "five: batch"; cat five.log; }
grep -q '"effective_batch": 12' five/run_args.json && grep -q '"micro_steps": 3' five/run_args.json ||
  fail "five: run_args.json: $(cat five/run_args.json)"
if [ -n "${MPIRUN:-}" ]; then
  use_mpi=1 same one processes 4 fsdp.strategy=hybrid_shard_zero2 fsdp.shard_size=2
else
  echo "[SKIP] fixed order over MPI: no MPI"
fi
same one threads 2 runtime.threads=3
for dtype in bf16 f16; do
  half=(train.dtype=$dtype train.reduce_dtype=$dtype)
  [ $dtype = bf16 ] && half+=(train.stochastic_rounding=true)
  run one_$dtype 1 "${half[@]}"
  same one_$dtype three_$dtype 3 "${half[@]}"
done
# Sums of two passes at a time are others; so the hashes can differ.
run other 2 train.rows_per_pass=2
[ "$(result other)" != "$(result one)" ] || fail "two rows a pass: the hashes of one"
run unordered 3 fsdp.fixed_order=false
[ "$(result unordered)" != "$(result one)" ] || fail "without fixed_order: its hashes"

# ---- on other ranks ------------------------------------------------------------------------------
run begun 2 train.steps=6 checkpoint.every=6 train.schedule.total=12
"$FSDP" train --resume begun --local-ranks 3 --set train.steps=12 fsdp.strategy=shard_grad_op >begun.log 2>&1 ||
  { fail "resume on other ranks: status $?"; cat begun.log; }
[ "$(result begun)" = "$(result one)" ] || fail "resumed: $(result begun), not $(result one)"
diff <(lines begun) <(lines one) >lines.diff || { fail "resumed: other lines"; head -4 lines.diff; }
grep -q '^note: 3 ranks instead of 2: the run continues bit for bit$' begun.log || fail "resumed: no note about ranks"

# ---- batch, rows and micro-steps -----------------------------------------------------------------
refused() {  # PATTERN RANKS key=value...
  local pattern=$1 ranks=$2; shift 2
  run_quietly refused "$ranks" "$@" && fail "accepted: $*"
  grep -q -e "$pattern" refused.log || { fail "no '$pattern' for: $*"; cat refused.log; }
  [ ! -e refused ] || fail "$*: a run directory is left"
}
refused 'train.rows_per_pass: 4 rows of train.batch 8 make 2 passes, fewer than 4 ranks' 4 train.batch=8 train.rows_per_pass=4
refused 'train.batch: expected train.rows_per_pass 1 x 2 ranks x train.micro_steps 3 = 6, got 12' 2 train.micro_steps=3
refused 'fsdp.fixed_order: needs train.rows_per_pass' 2 train.rows_per_pass=0
refused 'fsdp.fixed_order: train.loss_mean: ranks' 2 train.loss_mean=ranks
for key in accumulation=reduce_last accumulation=reduce_scatter_each force_sum=true split_division=true divide_factor=2; do
  refused "fsdp.fixed_order: .*${key%%=*}" 2 fsdp.$key fsdp.strategy=no_shard
done
refused 'train.rows_per_pass: expected at least 0, got -1' 2 train.rows_per_pass=-1
refused 'per_device_train_batch_size' 2 train.per_device_train_batch_size=many
# Hugging Face's habit: the batch grows with the ranks, at the start.
sed -i 's/batch: 12, //' config.yaml
run grows 2 train.gradient_accumulation_steps=3 train.steps=4 checkpoint.every=4
grep -q '^effective batch 6 = 1 row x 2 ranks x 3 micro-steps$' grows.log || fail "grows: $(cat grows.log)"
"$FSDP" train --resume grows --local-ranks 3 --set train.steps=8 >grows3.log 2>&1 && fail "the batch grew in mid-run"
grep -q 'effective batch 9 = .*; the run had: effective batch 6 = .*--set train.batch=6' grows3.log ||
  { fail "grows: not refused by name"; cat grows3.log; }
"$FSDP" train --resume grows --local-ranks 3 --set train.steps=8 train.batch=6 train.micro_steps=auto >grows3.log 2>&1 ||
  { fail "grows: what the error says does not help"; cat grows3.log; }

[ "$failed" = 0 ] && echo "fixed order: all is well"
exit "$failed"
