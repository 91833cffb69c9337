#!/usr/bin/env bash
# The recipes of tools/recipes: each is understood and predicted (--dry-run); one of each guide runs, at two
# steps, and its table shows what it must. All of them end to end: recipes_slow.sh.
# Environment: FSDP the program, SOURCE the repository.
source "$(dirname "$0")/../support/e2e.sh"
source "$(dirname "$0")/../support/recipes.sh"

# ---- each is understood ----------------------------------------------------------------------------
for file in tools/recipes/*/*.yaml; do
  [ "$(basename "$file")" = base.yaml ] && continue
  "$FSDP" sweep "$file" --dry-run >dry.log 2>&1 || fail "$file: $(cat dry.log)"
  for readme in "$(dirname "$file")/README.md" tools/recipes/README.md; do
    grep -q "$(basename "$file" .yaml)" "$readme" || fail "$readme does not name $file"
  done
done
# A model of one's own takes the place of the recipe's, and the one of full size stays.
"$FSDP" sweep tools/recipes/chess/ddp.yaml --set model.path=tools/recipes/mistral-alpaca/base-model --dry-run >dry.log 2>&1
grep -q 'FSDP: at full size 73,148 MiB' dry.log || fail "a folder on top of chess/ddp: $(cat dry.log)"
sh tools/recipes/fetch.sh >commands || fail "fetch.sh ended with $?"
bash -n commands || fail "fetch.sh: no commands: $(cat commands)"
tools/recipes/fetch.sh chess pythia 2>/dev/null | grep . && fail "fetch.sh: commands beside a guide that it does not know"

# ---- one of each guide, two steps --------------------------------------------------------------------
two=(--set train.steps=2 --set train.log_every=1)
sweep chess/ddp "${two[@]}"
all_close train_loss 1e-6
as_predicted
less FSDP-recompute FSDP peak_memory
[ "$(cells full_size_fits | xargs)" = "DDP false FSDP true FSDP-recompute true FSDP-one-unit false" ] ||
  fail "chess at full size: $(cells full_size_fits | xargs)"
sweep bloom-squad/strategies "${two[@]}"
all_close train_loss 1e-6
less FULL_SHARD-offload FULL_SHARD peak_memory
less FULL_SHARD HYBRID_SHARD full_size_peak
sweep pythia-wikitext/recompute "${two[@]}"
all_close train_loss 1e-6
less mode=full mode=selective activation_peak
less mode=selective mode=none activation_peak
sweep mistral-alpaca/compare "${two[@]}"
close DDP FSDP train_loss 1e-6
[ "$(cell DDP full_size_fits) $(cell FSDP full_size_fits)" = "false true" ] || fail "mistral: $(cat $table/table.csv)"
sweep fairseq-13b/memory "${two[@]}"
all_close train_loss 1e-6 sharded cpu-offload checkpoint-activations offload-activations no-reshard-after-forward as-the-guide
all_close train_loss 1e-6 update-freq-2 all-of-them
less checkpoint-activations sharded activation_peak
less all-of-them cpu-offload peak_memory

exit "$failed"
