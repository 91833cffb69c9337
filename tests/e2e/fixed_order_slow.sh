#!/usr/bin/env bash
# fsdp.fixed_order after 200 steps: one hash of weights and moments on 1, 2, 3, 4, 6 and 8 ranks under
# every strategy, in f32, bf16 and f16, with dropout, LoRA and frozen parts, and of runs that are killed
# and go on on other numbers of ranks under other strategies.
# Environment: FSDP the program, MPIRUN how to start processes (empty: no MPI), KILLS how many (30).
source "$(dirname "$0")/../support/e2e.sh"
source "$SOURCE/tests/support/fixed_order.sh"

text_and_config 200
ways() {  # of sharding among so many ranks, a line each
  printf '%s\n' full_shard shard_grad_op shard_optimizer no_shard
  for size in 2 3 4; do
    [ $(($1 % size)) = 0 ] && [ "$1" -gt "$size" ] || continue
    printf '%s fsdp.shard_size=%s\n' hybrid_shard "$size" hybrid_shard_zero2 "$size"
  done
}
compared=0
# cross KIND EVERY key=value...: every EVERY-th way on every number of ranks, against one rank
cross() {
  local kind=$1 every=$2 ranks way count=0; shift 2
  run "$kind" 1 "$@"
  for ranks in 1 2 3 4 6 8; do
    while read -r way; do
      [ $((count++ % every)) = 0 ] || continue
      # shellcheck disable=SC2086
      same "$kind" again "$ranks" "$@" fsdp.strategy=$way
      compared=$((compared + 1))
      rm -rf again
    done < <(ways "$ranks")
  done
}
cross f32 1
cross bf16 1 train.dtype=bf16 train.reduce_dtype=bf16 train.stochastic_rounding=true
cross f16 1 train.dtype=f16 train.reduce_dtype=f16 train.loss_scale.initial=1e6
cross wide 5 train.dtype=bf16 train.batch=16 train.rows_per_pass=2 train.recompute.mode=full
cross frozen 5 'train.freeze=["*.layers.0.*", "model.embed_tokens.weight"]'
run base 1 train.steps=1 train.save=true
sed 's/^model: .*/model: {path: base\/model}/' config.yaml >lora.yaml
mv config.yaml plain.yaml
cp lora.yaml config.yaml
cross lora 4 lora.r=3 lora.targets=all-linear lora.dropout=0.1
mv plain.yaml config.yaml

# ---- kills, and other ranks after each -----------------------------------------------------------
kills=0 round=0
while [ "$kills" -lt "${KILLS:-30}" ] && [ "$failed" = 0 ]; do
  round=$((round + 1))
  directory=disturbed$round
  for attempt in {1..9}; do
    ranks=$(shuf -n 1 -e 1 2 3 4 6 8)
    # shellcheck disable=SC2207
    way=($(ways "$ranks" | shuf -n 1))
    "$FSDP" train --config config.yaml --local-ranks "$ranks" --resume auto --set runtime.run_dir="$directory" \
      checkpoint.every=15 checkpoint.keep=2 fsdp.strategy="${way[@]}" >"$directory.log" 2>&1 </dev/null &
    pid=$!
    if [ "$attempt" -lt 9 ]; then
      sleep "0.$(printf %02d $((RANDOM % 99)))"
      kill "-$(shuf -n 1 -e KILL TERM USR1)" "$pid" 2>/dev/null && kills=$((kills + 1))
      wait "$pid"
    else
      wait "$pid" || { fail "$directory: status $?"; cat "$directory.log"; }
    fi
  done
  [ "$(result "$directory")" = "$(result f32)" ] || fail "$directory: $(result "$directory"), not $(result f32)"
  diff <(lines "$directory") <(lines f32) >lines.diff || { fail "$directory: other lines"; head -4 lines.diff; }
  rm -rf "$directory"
done
echo "fixed order: $compared runs compared, $kills kills"
[ "$compared" -ge 60 ] || fail "only $compared runs were compared"
exit "$failed"
