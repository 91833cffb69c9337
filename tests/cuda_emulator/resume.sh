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
grep -q '^note: .* instead of emulated GPU: the run goes on up to rounding$' log || fail "no note of the device: $(cat log)"
train --resume moved --steps 12 --local-ranks 1 --backend cuda
grep -q '^note: emulated GPU instead of .*: the run goes on up to rounding$' log || fail "no note of the GPU: $(cat log)"
ended cuda cpu
ended moved cpu

# What the copy takes: predicted, and in the ledger.
begin --backend cuda --set runtime.run_dir=async checkpoint.async=true
sed -n '/^on the host$/,/in all/p' log >host
awk '$1 == "workspace" && $2 > 0 && $2 == $3 { found = 1 } END { exit !found }' host ||
  fail "the copy of a checkpoint in the host's memory: $(cat host)"
exit "$failed"
