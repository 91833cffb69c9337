#!/usr/bin/env bash
# A run goes on from its checkpoint with another device than it began with: from an emulated GPU to the
# CPU and back, on another number of ranks. Its copies of a checkpoint are in the host's ledger.
# Environment: FSDP_EMULATED the program, SOURCE the repository.
source "$(dirname "$0")/../support/e2e.sh"

for i in {1..60}; do echo "a line of text, number $i"; done >text.txt
cat >config.yaml <<'YAML'
model: {model_type: gpt2, hidden_size: 16, layers: 2, heads: 2, dropout: 0.1}
data: {train: text.txt, sequence_length: 16}
train: {steps: 12, batch: 4, log_every: 1, schedule: {total: 12}}
checkpoint: {every: 6}
runtime: {share_gpus: true, threads: 1}
YAML
train() { "$FSDP_EMULATED" train "$@" >>log 2>&1 || { fail "train $*: status $?"; cat log; }; }
begin() { train --config config.yaml --local-ranks 2 "$@"; }

# ended RUN OTHER: they differ by rounding alone
ended() {
  awk -v run="$1" -F'[:,]' '
    { for (i = 1; i < NF; i += 2) value[FILENAME, $2, $i] = $(i + 1); last = $2 > last ? $2 : last }
    END {
      for (step = 7; step <= last; ++step) for (n = split("\"loss\" \"grad_norm\"", keys, " "); n; --n) {
        a = value[ARGV[1], step, keys[n]]; b = value[ARGV[2], step, keys[n]]
        if (a == "" || b == "" || (a - b) ^ 2 > (1e-6 * b) ^ 2) { print step, keys[n], a, b; bad = 1 }
      }
      exit bad || last != 12
    }' "$1/metrics.jsonl" "$2/metrics.jsonl" || fail "$1: other losses or norms than $2"
}

begin --backend cpu --set runtime.run_dir=cpu
begin --backend cuda --set runtime.run_dir=cuda checkpoint.async=true train.steps=6
begin --backend cpu --set runtime.run_dir=moved train.steps=6
: >log
train --resume cuda --steps 12 --local-ranks 3 --backend cpu
grep -q '^note: .* instead of emulated GPU: the run continues up to rounding$' log || fail "no note of the device: $(cat log)"
train --resume moved --steps 12 --local-ranks 1 --backend cuda
grep -q '^note: emulated GPU instead of .*: the run continues up to rounding$' log || fail "no note of the GPU: $(cat log)"
ended cuda cpu
ended moved cpu

# Attention's dq added up in any order: the run, its resume and its replay say that bits are not kept.
begin --backend cuda --set runtime.run_dir=any train.steps=6 train.dtype=bf16 model.dropout=0 \
  data.sequence_length=64 train.attention_deterministic=false checkpoint.every=3
any='train.attention_deterministic is false: where cuDNN computes attention its dq is added up in any order'
grep -q "^note: $any" log || fail "no note of attention's order: $(cat log)"
: >log
train --resume any --steps 8 --local-ranks 2 --backend cuda
grep -q "^note: $any" log || fail "no note of attention's order where a run goes on: $(cat log)"
"$FSDP_EMULATED" replay any --step 5 --local-ranks 2 >log 2>&1 || fail "replay: status $?: $(cat log)"
grep -q '^steps 4 to 6, compared to 0.02: train.attention_deterministic: false adds up in any order$' log ||
  fail "a replay in any order: $(cat log)"
"$FSDP_EMULATED" train --config config.yaml --backend cpu --set runtime.run_dir=none train.dtype=bf16 \
  train.attention_deterministic=false >log 2>&1 && fail "attention's order on the CPU"
grep -q 'train.attention_deterministic: false has no effect with runtime.backend: cpu' log || fail "refused otherwise: $(cat log)"

# What the copy takes: predicted, and in the ledger.
begin --backend cuda --set runtime.run_dir=async checkpoint.async=true
sed -n '/^on the host$/,/in all/p' log >host
awk '$1 == "workspace" && $2 > 0 && $2 == $3 { found = 1 } END { exit !found }' host ||
  fail "the copy of a checkpoint in the host's memory: $(cat host)"
exit "$failed"
