#!/usr/bin/env bash
# fsdp plan: a plan has the memory of fsdp memory and the time of fsdp explain; its YAML trains; what is
# wrong is said in a line.
# Environment: FSDP the program, SOURCE the repository.
# Requirements: S2.6.
source "$(dirname "$0")/../support/e2e.sh"

cat >job.yaml <<'YAML'
model: {model_type: llama, hidden_size: 64, layers: 3, heads: 4, vocab_size: 257}
data: {sequence_length: 64}
train: {batch: 32, dtype: bf16, steps: 2}
YAML
# number FILE KEY N: the Nth number of that key in JSON of one line.
number() { grep -o "\"$2\":[0-9.e+-]*" "$1" | sed -n "$3s/.*://p"; }

# ---- One job, beside memory and explain ------------------------------------------------------------
"$FSDP" plan --config job.yaml --gpu A100-80 --nodes 1,2 --svg scaling.svg --json >plan.json ||
  fail "plan ended with $?"
"$FSDP" memory --config job.yaml --gpu A100-80 --world 16 --json >memory.json || fail "memory"
[ "$(number plan.json peak_bytes 2)" = "$(number memory.json device 1)" ] ||
  fail "plan and memory have other bytes"
"$FSDP" explain --config job.yaml --gpu A100-80 --world 16 >explain.txt || fail "explain"
step=$(awk -v s="$(number plan.json step_s 2)" 'BEGIN { printf "%.3g", 1000 * s }')
grep -q "predicted step: $step ms" explain.txt || fail "explain has no step of $step ms"
grep -q "^<svg" scaling.svg || fail "no picture"
"$FSDP" report plan.json -o plan.html >/dev/null || fail "report"
grep -q "<svg" plan.html || fail "the page has no picture"

# ---- A search, and a run of what it found ----------------------------------------------------------
"$FSDP" plan --config job.yaml --gpu A100-80 --gpus-per-node 2 --search --top 2 --save best.yaml \
  --tokens 1e9 --price-per-gpu-hour 2 >search.txt || fail "search"
grep -q "candidates: " search.txt && grep -q "why the first" search.txt || fail "search says too little"
for i in {1..200}; do echo "a line of text, number $i"; done >text.txt
"$FSDP" train --config best.yaml --local-ranks 2 --backend cpu --data text.txt \
  --set runtime.run_dir=run >train.log 2>&1 || { fail "best.yaml does not train"; cat train.log; }

# ---- Mistakes --------------------------------------------------------------------------------------
refused() { # TEXT ARGUMENTS...
  local text=$1; shift
  "$FSDP" plan "$@" >out.txt 2>err.txt && fail "plan $* was accepted"
  grep -qF -- "$text" err.txt || { fail "plan $*: no \"$text\""; cat err.txt; }
}
refused "expected --gpu, or --validate" --config job.yaml
refused "32 rows are too few for 800 GPUs" --config job.yaml --gpu H100 --nodes 100
refused "numbers of nodes from 1 to 99999, got 0" --config job.yaml --gpu H100 --nodes 0
refused "needs two numbers of --nodes" --config job.yaml --gpu H100 --svg one.svg
refused "nothing.csv: cannot be read" --validate nothing.csv
# A size of memory has no times; a GPU has several names.
refused "a GPU of 48GiB: its memory alone is known, and no time: --rates NAME" --config job.yaml --gpu 48GiB
refused 'got "A100"; near: A100-40, A100-80' --config job.yaml --gpu A100
for command in explain memory; do
  "$FSDP" $command --config job.yaml --gpu 48GiB >size.txt || fail "$command --gpu 48GiB"
  grep -qE '^times?: of a GPU of 48GiB the memory alone is known' size.txt || { fail "$command --gpu 48GiB"; cat size.txt; }
done
grep -q '^fits: 48.00 GiB of a GPU,' size.txt || { fail "memory --gpu 48GiB: no verdict"; cat size.txt; }
"$FSDP" memory --config job.yaml --gpu "NVIDIA GeForce RTX 4090" | grep -q '^fits: 23.51 GiB of RTX-4090,' || fail "memory: RTX 4090"
echo "set,machine" >bad.csv
refused "bad.csv:1: column gpus is missing" --validate bad.csv
[ "$failed" = 0 ] && echo "plan: all is well"
exit "$failed"
