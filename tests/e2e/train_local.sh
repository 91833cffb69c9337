#!/usr/bin/env bash
# fsdp train with ranks as threads: the loss falls, the run directory is complete, what it wrote can
# be trained on, and one or several ranks, sharded or not, train the same model.
# Requirements: S0.9, S1.19, S3.11.
# Environment: FSDP the program, SOURCE the repository.
source "$(dirname "$0")/../support/e2e.sh"

head -400 "$SOURCE/tools/data/chess/train.jsonl" >train.jsonl
head -12 "$SOURCE/tools/data/chess/validation.jsonl" >validation.jsonl
cat >config.yaml <<'YAML'
model: {model_type: gpt2, hidden_size: 32, layers: 2, heads: 2}
data: {train: train.jsonl, validation: validation.jsonl, sequence_length: 48}
train: {steps: 40, batch: 6, lr: 1e-2, log_every: 10, eval_every: 20, schedule: {kind: constant, warmup: 4}}
runtime: {name: small}
sample: {prompt: "e2e4 ", tokens: 16}
YAML

# train RUN_DIR arguments...: runs, keeps the output in RUN_DIR.log
train() {
  local directory=$1; shift
  "$FSDP" train --config config.yaml --set "runtime.run_dir=$directory" "$@" >"$directory.log" 2>&1 ||
    { fail "train $* ended with $?"; cat "$directory.log"; }
}
# values RUN_DIR KEY: of metrics.jsonl, a line each
values() { grep -o "\"$2\":[^,}]*" "$1/metrics.jsonl" | cut -d: -f2; }

# ---- a run and what it leaves --------------------------------------------------------------------
train two --local-ranks 2 --trace
for file in run_args.json config.yaml metrics.jsonl metrics.json model/config.json \
  model/model.safetensors trace.rank0.json trace.rank1.json; do
  [ -s "two/$file" ] || fail "two/$file is missing"
done
mapfile -t losses < <(values two loss)
[ "${#losses[@]}" = 5 ] || fail "expected 5 logged steps (1, 10, 20, 30, 40), got ${#losses[@]}"
awk -v a="${losses[0]}" -v b="${losses[4]}" 'BEGIN { exit !(b < 0.6 * a) }' ||
  fail "the loss does not fall: ${losses[*]}"
[ "$(values two validation_loss | wc -l)" = 2 ] || fail "expected 2 evaluations"
[ "$(summary two world_size)" = 2 ] || fail "metrics.json: world_size"
[ "$(summary two true_tokens)" = $((40 * 6 * 47)) ] || fail "metrics.json: true_tokens"
[ "$(summary two strategy)" = '"full_shard"' ] || fail "metrics.json: strategy"
for line in '^step  1/40  loss ' '^step 20: validation loss ' 'bigram entropy  ' '^sample: e2e4 |' \
  'parameter shard  ' 'growth of RSS' '^run directory: two$'; do
  grep -q -e "$line" two.log || fail "the output has no line '$line'"
done
grep -qE "^$(hostname): .*, [0-9]+ cores?, [0-9.]+ of [0-9.]+ GiB of RAM in use$" two.log ||
  fail "no line of the device: $(head -5 two.log)"
for rank in 0 1; do  # a header and a row at least, without a GPU
  grep -qE '^20[^,]*Z(,[0-9.]+){5},{8}$' two/monitor.rank$rank.csv || fail "monitor: $(cat two/monitor.rank$rank.csv)"
done
# Busy share, load, memory available, and what this host has of swap, pressure, network, InfiniBand and disk.
grep -qE '^20[^,]*Z(,[0-9.]+){3}(,[0-9.]*){11}$' "two/monitor.host.$(hostname).csv" || fail "monitor: $(cat two/monitor.host.*)"
for file in metrics all_results; do
  for key in avg_cpu_util_% std_cpu_util_% train/steps_per_second train/samples_per_second_mean; do
    grep -qE "\"$key\": [0-9.e-]+,?\$" two/$file.json || fail "$file.json: no $key"
  done
done
[ "$(summary two approx_tokens)" = $((40 * 6 * 48)) ] || fail "metrics.json: approx_tokens"
grep -q '"name":"all_gather"' two/trace.rank1.json || fail "the trace has no all_gather"
grep -q '"cat"\|"ph":"X"' two/trace.rank0.json || fail "the trace has no events"

# ---- which rows: folders, patterns, a subset, rows that are skipped -------------------------------
cat >rows.yaml <<'YAML'
model: {model_type: gpt2, hidden_size: 16, layers: 1, heads: 2}
data: {train: texts, sequence_length: 16, shuffle: false}
train: {steps: 2, batch: 2}
YAML
mkdir texts
row() { printf '{"text": "row number %d, of some length"}\n' "$1"; }
for i in {0..3}; do row "$i"; done >texts/a.jsonl
for i in {4..9}; do row "$i"; done >texts/b.jsonl
echo 'no text to train on' >texts/README.md
# datasets: shuffle(seed=42).select(range(6)) of ten rows
for i in 5 6 0 7 3 2; do row "$i"; done >chosen.jsonl
rows() {  # RUN_DIR key=value...
  local directory=$1 keys=(); shift
  for key in "$@"; do keys+=(--set "$key"); done
  "$FSDP" train --config rows.yaml --local-ranks 2 --set "runtime.run_dir=$directory" "${keys[@]}" \
    >"$directory.log" 2>&1 || { fail "train $*"; cat "$directory.log"; }
}
same_model() { cmp -s "$1/model/model.safetensors" "$2/model/model.safetensors" || fail "$1 and $2 differ"; }
rows chosen data.train=chosen.jsonl
rows subset data.subset.n=6
same_model chosen subset
rows unwatched data.train=chosen.jsonl runtime.monitor_s=0
same_model chosen unwatched
[ -e chosen/monitor.rank1.csv ] && [ ! -e unwatched/monitor.rank0.csv ] && ! grep -q avg_cpu unwatched/metrics.json ||
  fail "runtime.monitor_s=0 is watched, or 1 is not"
grep -qx 'data.train: 2 files: texts/a.jsonl, texts/b.jsonl; 6 of the rows, by seed 42' subset.log ||
  fail "the texts are not named: $(grep '^data' subset.log)"
[ -e subset/skipped_rows.jsonl ] && fail "a list of skipped rows without any"
rows other_seed 'data.subset={n: 6, seed: 43}' 'data.train=texts/?.jsonl'
cmp -s {subset,other_seed}/model/model.safetensors && fail "another seed takes the same rows"
# The same rows as Alpaca's, in an array; the byte tokenizer shows the length of the prompt.
{ echo '['; for i in 1 2 3; do
    echo '{"instruction": "Say.", "input": "", "output": "a"}'"$([ $i = 3 ] || echo ,)"; done; echo ']'
} >alpaca.json
rows alpaca data.train=alpaca.json data.format=alpaca train.epochs=1
[ "$(summary alpaca true_tokens)" = $((3 * 145 / 16 * 15)) ] ||
  fail "Alpaca's prompts have another length: $(summary alpaca true_tokens)"
mkdir broken
{ echo '{"text": '; cat texts/a.jsonl; } >broken/a.jsonl
{ row 4; echo '{"txt": ""}'; tail -n +2 texts/b.jsonl; } >broken/b.jsonl
for run in skipped again; do  # the second finds the tokens of the first
  rows $run data.train=broken data.bad_rows=skip 'data.subset={n: 6, seed: 42}'
  same_model chosen $run
  grep -q '^note: data.bad_rows: 2 rows are skipped and listed in skipped_rows.jsonl; the first is broken/a.jsonl:1: ' \
    $run.log || fail "skipped rows are not counted: $(cat $run.log)"
  [ "$(grep -c . $run/skipped_rows.jsonl)" = 2 ] &&
    grep -qx '{"file":"broken/b.jsonl","line":2,"reason":"no field \\"text\\" (fields: txt)"}' \
      $run/skipped_rows.jsonl || fail "skipped_rows.jsonl: $(cat $run/skipped_rows.jsonl)"
done
"$FSDP" train --config rows.yaml --set data.train=broken --set runtime.run_dir=no >no.log 2>&1 &&
  fail "skipped rows are not an error without data.bad_rows"
grep -q 'broken/a.jsonl:1: malformed JSON' no.log || fail "bad rows: $(cat no.log)"

# ---- memory: what the ledger counts is what the process grows by ---------------------------------
# Ledger and growth of RSS, MiB, from the table at the end, of a model large enough for the constant
# (the program's own pages, stacks, generated code of matrix products) to be small beside it.
for ranks in 1 2; do
  train memory$ranks --local-ranks $ranks --set model.hidden_size=384 --set model.layers=4 \
    --set train.steps=3 --set train.schedule.warmup=0
  grep '^  this process' memory$ranks.log | grep -o '[0-9]*\.[0-9]*' | tr '\n' ' ' |
    awk '{ exit !($1 > 90 && $2 > 0.95 * $1 && $2 <= 1.05 * $1 + 24) }' ||
    fail "RSS grew by more than the ledger, 5 % and 24 MiB: $(grep '^  this process' memory$ranks.log)"
done

# ---- a limit of addresses, far below the machine's memory: what needs no more runs, what does is refused ----
limited() { bash -c 'ulimit -v 1000000; exec "$0" "$@"' "$FSDP" train --config config.yaml --local-ranks 2 "$@"; }
limited --steps 2 --set runtime.run_dir=limited >limited.log 2>&1 || fail "ulimit -v: $(cat limited.log)"
limited --set runtime.run_dir=refused --set model.hidden_size=2048 --set model.layers=4 >refused.log 2>&1 &&
  fail "a run of gigabytes under ulimit -v 1000000"
grep -qE '^fsdp: this run needs [0-9.]+ GiB per rank, the limit is [0-9.]+ MiB \(976\.56 MiB of ulimit -v for 2 ranks, less [0-9.]+ MiB for the program itself\)$' \
  refused.log || fail "what a run needs, and what there is: $(cat refused.log)"
[ ! -e refused ] || fail "a refused run has left a directory"

# ---- default name, and never into a directory that is there ---------------------------------------
"$FSDP" train --config config.yaml --set runtime.run_dir=two >again.log 2>&1 &&
  fail "an existing run directory was used again"
grep -q '^fsdp: runtime.run_dir: two is there already' again.log || fail "no word about it"
"$FSDP" train --config config.yaml --steps 1 >named.log 2>&1 || fail "train --steps 1: $(cat named.log)"
[ -n "$(find runs -maxdepth 1 -name 'small-2*')" ] || fail "no runs/small-<timestamp>"

# ---- ranks and strategies agree ------------------------------------------------------------------
train one --local-ranks 1
train three --local-ranks 3
train ddp --local-ranks 2 --set fsdp.strategy=no_shard
for other in two three ddp; do
  paste <(values one loss; values one grad_norm; values one validation_loss) \
    <(values $other loss; values $other grad_norm; values $other validation_loss) |
    awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-5 * $1) bad = 1; n++ } END { exit bad || n != 12 }' ||
    fail "one rank and '$other' differ by more than 1e-5"
done

# ---- training goes on from what it wrote ----------------------------------------------------------
train more --local-ranks 2 --set model.path=two/model --set train.steps=1
first=$(values more loss | head -1)
awk -v a="$first" -v b="${losses[4]}" 'BEGIN { exit !(a < b + 0.5) }' ||
  fail "training on from two/model starts with loss $first, it ended with ${losses[4]}"

[ "$failed" = 0 ] && echo "train with ranks as threads: all is well"
exit "$failed"
