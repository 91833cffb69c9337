#!/usr/bin/env bash
# Every mistake in the input ends in one clear line and a non-zero status, on all ranks, soon, and
# leaves no run directory; with ranks as threads and as processes.
# Environment: FSDP the program, SOURCE the repository, MPIRUN how to start processes (empty: no MPI).
# Requirements: S0.10.
source "$(dirname "$0")/../support/e2e.sh"

cat >config.yaml <<'YAML'
model: {model_type: gpt2, hidden_size: 16, layers: 1, heads: 2}
data: {train: good.jsonl, validation: good.jsonl, sequence_length: 16}
train: {steps: 3, batch: 4}
runtime: {run_dir: run}
YAML
for i in {1..30}; do echo '{"text": "a line of text, number '"$i"'"}'; done >good.jsonl

# ---- the mistakes --------------------------------------------------------------------------------
: >empty.txt
printf 'good\nbad \xff byte, and some more text\n' >invalid.txt
sed '17s/.*/{"text": "no end/' good.jsonl >malformed.jsonl
sed 's/layers/layrs/' config.yaml >unknown_key.yaml
mkfifo pipe.txt
"$FSDP" train --config config.yaml --set runtime.run_dir=donor >donor.log 2>&1 || cat donor.log
model=$(ls -d donor/model)
sed '/^model:/d' config.yaml >folder.yaml  # for folders with other sizes
mkdir bin truncated hollow
cp "$model/config.json" bin && : >bin/pytorch_model.bin
cp "$model/config.json" truncated
head -c 5000 "$model/model.safetensors" >truncated/model.safetensors

"$FSDP" train --config config.yaml --set model.vocab_size=320 --set runtime.run_dir=wide_run \
  --steps 1 >wide.log 2>&1 || cat wide.log
mv wide_run/model wide

"$FSDP" train --config config.yaml --backend cpu --gpu-transport nccl >transport.log 2>&1
[ $? = 78 ] || fail "a transport for GPUs, on the CPU: $(cat transport.log)"

# What only the number of ranks makes a mistake, also in a run that goes on: with the place of its key.
"$FSDP" train --config config.yaml --set runtime.run_dir=passes train.rows_per_pass=2 train.steps=1 checkpoint.every=1 >passes.log 2>&1 || cat passes.log
for given in "--set train.rows_per_pass=2" "--resume passes --set train.steps=2"; do
  [[ $given = --resume* ]] || given="--config config.yaml $given"
  "$FSDP" train $given --local-ranks 4 >passes.log 2>&1
  [ $? = 78 ] || fail "passes: another status than 78: $(cat passes.log)"
  grep -qE '^fsdp: (--set [^:]*|passes/checkpoints/step-1/checkpoint.json): train.rows_per_pass: 2 rows of train.batch 4 make 2 passes, fewer than 4 ranks: ' passes.log ||
    fail "passes: $(cat passes.log)"
done

# ---- one line, not zero, soon --------------------------------------------------------------------
# check 'regular expression' command...
check() {
  local expected=$1 begin=$SECONDS status lines
  shift
  timeout 60 "$@" >out 2>err </dev/null
  status=$?
  [ "$status" != 0 ] && [ "$status" != 124 ] || fail "status $status of: $*"
  [ $((SECONDS - begin)) -lt 20 ] || fail "took $((SECONDS - begin)) s: $*"
  lines=$(grep -c '^fsdp: ' err)
  [ "$lines" = 1 ] || { fail "$lines lines of ours instead of 1: $*"; cat err; }
  grep -q '^the last collectives' err && { fail "explains collectives: $*"; cat err; }
  grep -qE "^fsdp: .*($expected)" err || { fail "no '$expected' from: $*"; grep '^fsdp' err; }
  [ ! -e run ] || { fail "a run directory was made by: $*"; rm -rf run; }
}
# On two ranks: try 'regular expression' arguments of train...
try() {
  local expected=$1
  shift
  rm -rf diverged  # a run directory that is there is another error
  check "$expected" "$FSDP" train "$@" --local-ranks 2
}
# Under both ways to have two ranks: one mistake at least of every stage of a start (command line,
# configuration, data, model folder, plan), and what only one rank meets or what ends a step.
both() {
  local expected=$1
  try "$@"
  shift
  [ -n "${MPIRUN:-}" ] || return
  rm -rf diverged
  check "$expected" $MPIRUN -n 2 "$FSDP" train "$@"
}
both 'missing\.txt' --config config.yaml --set data.train=missing.txt
both 'missing\.yaml' --config missing.yaml
try 'data\.train'
try 'empty\.txt' --config config.yaml --set data.train=empty.txt
try '--resume: expected a value, got an empty text' --config config.yaml --resume "" --set runtime.run_dir=unset
try '--config: expected a value, got an empty text' --config ""
try 'invalid\.txt:2' --config config.yaml --set data.train=invalid.txt
try 'pipe\.txt: expected a file, got a FIFO' --config config.yaml --set data.train=pipe.txt
try 'pipe\.txt: expected a file, got a FIFO' --config pipe.txt
try '/dev/zero: expected a file, got a device' --config config.yaml --set data.train=/dev/zero
both 'malformed\.jsonl:17' --config config.yaml --set data.train=malformed.jsonl
try 'no row is left: all 30 would be skipped, the first in line 1: no field "story"' \
  --config config.yaml --set data.field=story --set data.bad_rows=skip
try 'data\.subset\.n: expected 1 to 30, the rows of good\.jsonl, got 31' --config config.yaml \
  --set data.subset.n=31
try 'data\.subset\.n: expected files of rows \(of JSON or a table\), got config\.yaml' --config config.yaml \
  --set data.train=config.yaml --set data.subset.n=1
try 'data\.train: bad\*\.jsonl: no file matches this pattern' --config config.yaml \
  --set 'data.train=bad*.jsonl'
try 'data\.train: hollow: no file in this folder ends with \.jsonl, \.json, .*\.csv, \.tsv or \.txt' \
  --config config.yaml --set data.train=hollow
try 'unknown_key\.yaml:1: .*layrs.*layers' --config unknown_key.yaml
try 'train\.lrr.*lr' --config config.yaml --set train.lrr=1
both '1 sequence.*2 ranks' --config config.yaml --set train.batch=1
try '257.*100|100.*257' --config config.yaml --set model.vocab_size=100
both 'vocab.*257|257.*vocab' --config folder.yaml \
  --set "model.path=$SOURCE/tests/fixtures/models/gpt2" --set data.sequence_length=8
both 'truncated' --config folder.yaml --set model.path=truncated
try 'bin.*safetensors|safetensors.*bin' --config folder.yaml --set model.path=bin
try 'nowhere' --config folder.yaml --set model.path=nowhere
both 'fsdp.units: nothing: ' --config config.yaml \
  --set 'fsdp.units=[{match: nothing, strategy: no_shard}]'
try 'f16 needs loss scaling' --config config.yaml --set train.dtype=f16 \
  --set train.loss_scale.rule=none
both 'step [0-9]+: loss .* not finite.* on rank [01]' --config config.yaml --set train.lr=1e38 \
  --set train.steps=200 --set train.clip_norm=0 --set runtime.run_dir=diverged
[ -s diverged/metrics.jsonl ] || fail "a run that diverged left no metrics"
check 'walk' "$FSDP" walk
both 'unknown option --stesp; the nearest option is --steps' --config config.yaml --stesp 5
try 'runtime\.name: expected a name without /, got "a/\.\./\.\./b"' --config config.yaml \
  --set runtime.name=a/../../b --set runtime.run_dir=
try '--steps many: train\.steps: expected an integer, got "many"' --config config.yaml --steps many
try 'train\.steps: given twice, with different values: --set train\.steps=6 and --steps 5' \
  --config config.yaml --steps 5 --set train.steps=6
try 'train: --steps needs a value, but --config follows' --steps --config config.yaml
check '--ids: token 300: the tokenizer bytes has the ids 0 to 256, the model 0 to' \
  "$FSDP" generate wide --tokenizer bytes --ids 300
# One flipped byte of the kept tokens: one rank meets it in its part, and all end.
cp good.jsonl flipped.jsonl
"$FSDP" train --config config.yaml --set data.train=flipped.jsonl --set runtime.run_dir=kept \
  >kept.log 2>&1 || cat kept.log
cache=$(ls .cache/tokens/flipped-*.tokens)
printf 'X' | dd of="$cache" bs=1 seek=400 conv=notrunc status=none
both "$cache: this token cache cannot be used: its tokens 0 to [0-9]* are damaged" \
  --config config.yaml --set data.train=flipped.jsonl
both "$cache: this token cache cannot be used: its tokens 0 to [0-9]* are damaged" \
  --config config.yaml --set data.train=flipped.jsonl --set data.validation= --set runtime.run_dir=diverged
if [ -n "${MPIRUN:-}" ]; then
  check 'local-ranks' $MPIRUN -n 2 "$FSDP" train --config config.yaml --local-ranks 2
  # More would wait for ever for one that has done enough.
  check 'different options: --tokens: 4 on rank 0, not given on rank 1' \
    $MPIRUN -n 1 "$FSDP" generate "$model" --prompt a --tokens 4 \
    : -n 1 "$FSDP" generate "$model" --prompt a
  check 'different configurations: runtime.shared_memory: true on rank 0, false on rank 1' \
    $MPIRUN -n 1 "$FSDP" train --config config.yaml \
    : -n 1 "$FSDP" train --config config.yaml --set runtime.shared_memory=false
  check 'different configurations: runtime.gpu_transport: "auto" on rank 0, "host" on rank 1' \
    $MPIRUN -n 1 "$FSDP" train --config config.yaml \
    : -n 1 "$FSDP" train --config config.yaml --gpu-transport host
  check 'different options: command: eval on rank 0, train on rank 1' \
    $MPIRUN -n 1 "$FSDP" eval "$model" --data good.jsonl \
    : -n 1 "$FSDP" train --config config.yaml
  # One rank alone may take less than the other.
  check 'this run needs .* per rank, the limit is .* \(1.91 GiB of ulimit -v, less .* for the program itself, on rank 1\)' $MPIRUN -n 2 bash -c \
    '[ "$OMPI_COMM_WORLD_RANK" = 0 ] || ulimit -v 2000000; exec "$0" "$@"' \
    "$FSDP" train --config config.yaml --set model.hidden_size=2048 --set model.layers=4
fi

[ "$failed" = 0 ] && echo "bad input: every mistake has its line"
exit "$failed"
