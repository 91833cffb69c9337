#!/usr/bin/env bash
# Every recipe of tools/recipes end to end, each case once: its cases run or are refused, and its table shows
# what its README says. Times are looked at only as far as a busy machine cannot change them.
# Environment: FSDP the program, SOURCE the repository, MPIRUN how to start processes (empty: no MPI).
# Requirements: S0.8, S1.1, S1.16, S1.18, S2.1, S3.15, S4.4, S4.15.
source "$(dirname "$0")/../support/e2e.sh"
source "$(dirname "$0")/../support/recipes.sh"
cores=$(nproc)

# ---- chess: CodeLlama-7B ---------------------------------------------------------------------------
sweep chess/batch
[ "$(cells status | awk '$2 == "refused" { print $1 }' | xargs)" = \
  "mode=none,rows_per_pass=64 mode=none,rows_per_pass=128 mode=full,rows_per_pass=128" ] ||
  fail "which batches do not fit: $(cells status | xargs)"
# A case that is refused needs what `fsdp memory` says here: a processor's matmuls have scratch of their own.
needed() {  # CASE 'in all' or a category: MiB
  "$FSDP" memory --config "$table/$1/case.yaml" --world 2 |
    awk -v of="$2" '$0 ~ "^  " of " " { print $(NF - (of != "in all")) }'
}
refused=mode=none,rows_per_pass=64
grep -qF "$refused: refused: this run needs $(needed $refused 'in all') MiB per rank, the limit is 96.00 MiB" $table/table.md ||
  fail "the row of the OOM: expected $(needed $refused 'in all') MiB: $(grep -F $refused $table/table.md)"
[ "$(needed $refused activation)" = 147.85 ] || fail "$refused: $(needed $refused activation) MiB of activations"
as_predicted
for rows in 1 2 4 8 16 32; do
  less mode=full,rows_per_pass=$rows mode=none,rows_per_pass=$rows peak_memory
  less mode=full,rows_per_pass=$rows mode=none,rows_per_pass=$rows full_size_peak
done
holds "(b / a - 2)^2 < 1e-4" "a=$(cell mode=none,rows_per_pass=16 activation_peak)" "b=$(cell mode=none,rows_per_pass=32 activation_peak)"
[ "$(cells full_size_fits | awk '$2 == "true"' | wc -l)" = 9 ] || fail "at full size: $(cells full_size_fits | xargs)"
sweep chess/ddp
all_close train_loss 1e-6
all_close validation_loss 1e-6
as_predicted
less FSDP DDP peak_memory
less FSDP FSDP-one-unit gathered_peak

# ---- bloom-squad: BLOOM-560M ------------------------------------------------------------------------
sweep bloom-squad/baseline
holds "em >= 90" "em=$(cell F-B-1G1N exact_match)"
holds "em <= 5" "em=$(cell labels-of-workshop exact_match)"
[ -d bloom-squad-baseline/F-B-1G1N/run1/checkpoints ] || fail "baseline keeps no best checkpoint"
sweep bloom-squad/strategies
all_close train_loss 1e-6
as_predicted
for strategy in FULL_SHARD SHARD_GRAD_OP HYBRID_SHARD; do
  less $strategy-offload $strategy peak_memory
  less $strategy-offload $strategy full_size_peak
  holds "host > 0" "host=$(cell $strategy-offload host_peak)"
done
less FULL_SHARD SHARD_GRAD_OP gathered_peak
holds "(b / a - 2)^2 < 1e-2" "a=$(cell FULL_SHARD optimizer_peak)" "b=$(cell HYBRID_SHARD optimizer_peak)"
sweep bloom-squad/ranks
all_close train_loss 1e-6
as_predicted
less F-B-2G1N F-B-1G1N peak_memory
less F-B-4G1N F-B-2G1N peak_memory
less F-B-8G1N F-B-4G1N peak_memory
# What tools/predict/guides.md says of 2, 4 and 8 GPUs.
[ "$(for n in 2 4 8; do cell F-B-${n}G1N full_size_peak | cut -c1-7; done | xargs)" = "6860.70 4727.47 3660.85" ] ||
  fail "BLOOM-560M: $(cells full_size_peak | xargs)"
if [ "$cores" -ge 2 ]; then
  holds "s == 1 && e == 1" "s=$(cell F-B-1G1N speed_up)" "e=$(cell F-B-1G1N efficiency)"
  holds "(2 * e - s)^2 < 1e-12" "s=$(cell F-B-2G1N speed_up)" "e=$(cell F-B-2G1N efficiency)"
fi
for name in 4G1N 8G1N; do
  [ "$cores" -ge "${name%%G*}" ] || [ "$(cell F-B-$name status),$(cell F-B-$name efficiency)" = oversubscribed, ] ||
    fail "$name has an efficiency on $cores cores: $(cell F-B-$name efficiency)"
done
if [ -n "${MPIRUN:-}" ]; then
  $MPIRUN -n 2 "$FSDP" bench comm --expect-ranks 2 --min-busbw 0.001 >log 2>&1 &&  # the gate, no measure here
    "$FSDP" sweep tools/recipes/bloom-squad/ranks.yaml --with mpirun --out processes >log 2>&1 || fail "--with mpirun: $(cat log)"
  table=bloom-squad-ranks one=$(cells train_loss)
  table=processes
  [ "$(cells train_loss)" = "$one" ] || fail "processes have other losses than threads: $(cells train_loss | xargs), $one"
else
  echo "[SKIP] a sweep over processes: no MPI"
fi
sweep bloom-squad/weak
if [ "$cores" -ge 2 ]; then
  holds "(w - a / b)^2 < 1e-12" "w=$(cell F-BW-2G weak_efficiency)" "a=$(cell F-BW-1G s_per_step)" "b=$(cell F-BW-2G s_per_step)"
fi
sweep bloom-squad/weak-layers
# Twice the layers are not twice the parameters of the workshop's GPT, nor half of the memory.
holds "b < 1.9 * a" "a=$(cell F-CW-2G parameters)" "b=$(cell F-CW-4G parameters)"
holds "b > 0.6 * a" "a=$(cell F-CW-2G full_size_peak)" "b=$(cell F-CW-4G full_size_peak)"

# ---- pythia-wikitext: Pythia-1B ---------------------------------------------------------------------
sweep pythia-wikitext/units
all_close train_loss 1e-6
as_predicted
for pair in "1e8 3e8" "2e7 1e8" "5e6 2e7" "1e6 5e6"; do
  less ${pair#* } ${pair% *} gathers_per_step
done
# The small model's units are of the same parts: the same order of memory as at full size.
for pair in "1e6 5e6" "5e6 2e7" "2e7 3e8" "3e8 1e8"; do
  for column in gathered_peak peak_memory full_size_peak; do less $pair $column; done
done
sweep pythia-wikitext/recompute
all_close train_loss 1e-6
as_predicted
less mode=full mode=selective full_size_peak
holds "b < 0.7 * a" "a=$(cell mode=none peak_memory)" "b=$(cell mode=full peak_memory)"
sweep pythia-wikitext/mode
all_close train_loss 1e-6
for parts in 1 4; do
  less strategy=full_shard,micro_steps=$parts strategy=no_shard,micro_steps=$parts full_size_peak
done
sweep pythia-wikitext/rates
less lr=3e-3,weight_decay=0.01 lr=1e-4,weight_decay=0.01 perplexity
holds "(exp(l) - p)^2 < 1e-6 * p * p" "l=$(cell lr=1e-3,weight_decay=0 validation_loss)" "p=$(cell lr=1e-3,weight_decay=0 perplexity)"
[ "$(find pythia-wikitext-rates -name case.yaml -exec sha256sum {} + | awk '{ print $1 }' | sort -u | wc -l)" = 6 ] ||
  fail "rates: not six configurations"
"$FSDP" memory --formula seed002 | grep -q '7\.45' || fail "memory --formula seed002: not 7.45 GiB"

# ---- mistral-alpaca: Mistral-7B ---------------------------------------------------------------------
sweep mistral-alpaca/compare
close DDP FSDP train_loss 1e-6
as_predicted
less FSDP DDP peak_memory
less FSDP FSDP-f32-masters full_size_peak
[ "$(cells full_size_fits | xargs)" = "one false DDP false FSDP true FSDP-f32-masters true" ] ||
  fail "Mistral-7B on H100s: $(cells full_size_fits | xargs)"
sweep mistral-alpaca/lora
close LoRA-DDP LoRA-FSDP train_loss 1e-6
less LoRA-FSDP whole-FSDP full_size_peak
less LoRA-FSDP LoRA-DDP full_size_peak
for file in run_args metrics; do
  grep -q '"model": ".*base-model"' mistral-alpaca-lora/LoRA-DDP/run1/$file.json || fail "$file.json: no folder of the model"
done
sweep mistral-alpaca/synthetic
for ranks in 1 2 4; do
  holds "(l - log(1000))^2 < 0.16" "l=$(cell steps=1,ranks=$ranks train_loss)"
  close steps=8,ranks=$ranks steps=8,ranks=1 mean_train_loss 1e-6
done

# ---- fairseq-13b: GPT-3 13B ----------------------------------------------------------------------------
sweep fairseq-13b/memory
all_close train_loss 1e-6 sharded cpu-offload checkpoint-activations offload-activations no-reshard-after-forward as-the-guide
all_close train_loss 1e-6 update-freq-2 all-of-them
holds "2 * a == b" "a=$(cell sharded /samples)" "b=$(cell update-freq-2 /samples)"
close update-freq-2 sharded peak_memory 1e-3
# What tools/predict/guides.md says of eight sequences on each of eight V100.
[ "$(cell checkpoint-activations full_size_peak | cut -c1-8),$(cells full_size_fits | awk '$2 == "true" { print $1 }' | xargs)" = \
  "39444.77,as-the-guide all-of-them" ] || fail "13B on V100s: $(cells full_size_peak | xargs), $(cells full_size_fits | xargs)"
less cpu-offload sharded peak_memory
less offload-activations checkpoint-activations activation_peak
less no-reshard-after-forward sharded gathers_per_step
less sharded no-reshard-after-forward gathered_peak
less all-of-them cpu-offload full_size_peak
sweep fairseq-13b/ranks
# Eight ranks with a row each do the step of one rank with eight rows, which updates eight times as much.
close 8-ranks 1-rank-with-the-rows-of-8 train_loss 1e-5
close 2-ranks 1-rank-with-the-rows-of-2 train_loss 1e-5
holds "a > 7 * b" "a=$(cell 1-rank host_peak)" "b=$(cell 8-ranks host_peak)"
# At full size the update is what makes eight ranks more than eight times as fast: with its words the one rank
# would update as rarely.
words() {  # RANKS MICRO-STEPS: a second, predicted
  "$FSDP" explain --model transformer_lm_gpt3_13 --world "$1" --set train.rows_per_pass=8 train.micro_steps="$2" \
    data.sequence_length=2048 train.dtype=f16 train.recompute.mode=full fsdp.offload=all |
    awk -v words=$((8 * 2048 * $1 * $2)) '/^predicted step/ { print words / ($4 == "s" ? $3 : $3 / 1000) }'
}
one=$(words 1 1) one_rarely=$(words 1 8) eight=$(words 8 1)
holds "eight / one > 12 && eight / rarely < 9" "eight=$eight" "one=$one" "rarely=$one_rarely"
sweep fairseq-13b/scale
close f32 f16-from-4 mean_train_loss 1e-3
[ "$(cells /skipped_steps | awk '{ print $2 }' | xargs)" = "0 0 4 14" ] || fail "skipped: $(cells /skipped_steps | xargs)"

# ---- study -------------------------------------------------------------------------------------------------
sweep study/gathers
all_close train_loss 1e-6
[ "$(cells gathers_per_step | awk '{ print $2 }' | xargs)" = "18.0 5.0 5.0 0.0" ] || fail "gathers: $(cells gathers_per_step | xargs)"
sweep study/prefetch
all_close train_loss 1e-6
less none both gathered_peak
less both two-ahead gathered_peak
sweep study/small-units
less single-matrices blocks gathered_peak
less blocks single-matrices gathers_per_step
sweep study/large-units
less blocks whole-model peak_memory
less whole-model blocks gathers_per_step
sweep study/masters
holds "b > a + 0.1" "a=$(cell f32-masters validation_loss)" "b=$(cell bf16-masters validation_loss)"
holds "(b - a)^2 < 0.0025" "a=$(cell f32-masters validation_loss)" "b=$(cell bf16-masters-rounded-at-random validation_loss)"
sweep study/accumulation
for parts in 2 4; do
  close loss_mean=tokens,micro_steps=$parts loss_mean=tokens,micro_steps=1 mean_train_loss 1e-6
  holds "(a - b)^2 > 1e-6" "a=$(cell loss_mean=ranks,micro_steps=$parts mean_train_loss)" "b=$(cell loss_mean=ranks,micro_steps=1 mean_train_loss)"
done
# Who waits for whom is a matter of time: a busy machine has three tries.
for _ in 1 2 3; do
  rm -rf study-straggler
  sweep study/straggler
  late=$(cells straggler | xargs)
  [ "$late" = "batch=2 batch=3 rank 0 batch=4" ] && break
done
[ "$late" = "batch=2 batch=3 rank 0 batch=4" ] || fail "straggler: $late"
# Of three rows rank 0 has two, as of four.
holds "a < b && b == c" "a=$(cell batch=2 peak_memory)" "b=$(cell batch=3 peak_memory)" "c=$(cell batch=4 peak_memory)"
sweep study/same-bits
distinct() { cells weights_hash | grep "^fixed_order=$1," | awk '{ print $2 }' | sort -u | wc -l; }
[ "$(distinct false) $(distinct true)" = "3 1" ] || fail "same bits: $(cells weights_hash | xargs)"
sweep study/no-sync
all_close train_loss 1e-6
for strategy in full_shard no_shard; do
  holds "a - b == 15" "a=$(cell strategy=$strategy,accumulation=reduce_each reduces_per_step)" \
    "b=$(cell strategy=$strategy,accumulation=reduce_last reduces_per_step)"
done

exit "$failed"
