#!/usr/bin/env bash
# fsdp explain says before a run what the run then does; fsdp trace draws a step of a run; fsdp compare
# shows what a knob changed; all have a line for what is wrong with their input.
# Environment: FSDP the program, SOURCE the repository.
# Requirements: S0.12, S2.7, S3.10, S3.17.
source "$(dirname "$0")/../support/e2e.sh"

for i in {1..60}; do echo "a line of text, number $i"; done >text.txt
cat >config.yaml <<'YAML'
model: {model_type: llama, hidden_size: 24, layers: 3, heads: 2, ffn: 70}
data: {train: text.txt, sequence_length: 16}
train: {steps: 5, batch: 6, schedule: {kind: constant}}
YAML

# ---- explain, against a run ----------------------------------------------------------------------
train() {
  local directory=$1; shift
  "$FSDP" train --config config.yaml --local-ranks 3 --set "runtime.run_dir=$directory" "$@" \
    >"$directory.log" 2>&1 || { fail "train $*"; cat "$directory.log"; }
}
explain() { "$FSDP" explain --config config.yaml "$@" || fail "explain $* ended with $?"; }
# row FILE NAME N: the Nth number of the row of the category in a memory table
row() { grep -m1 "^  $2 " "$1" | grep -oE '[0-9]+\.[0-9]+' | sed -n "$3p"; }
more=(--set data.validation=text.txt --set sample.tokens=9 --set train.recompute.mode=full
  --set train.save_dtype=bf16)
train full --trace
train ddp --set fsdp.strategy=no_shard
train more "${more[@]}"
explain --world 3 >full.txt
explain --world 3 --set fsdp.strategy=no_shard >ddp.txt
explain --world 3 "${more[@]}" >more.txt
for run in full ddp more; do
  for category in 'parameter shard' 'unsharded parameter' gradient 'optimizer state' activation \
    'key-value cache' communication workspace 'all at once'; do
    said=$(row $run.txt "$category" 1) predicted=$(row $run.log "$category" 1)
    was=$(row $run.log "$category" 2)
    [ "${said:-0.00}" = "${was:-0.00}" ] && [ "${predicted:-0.00}" = "${was:-0.00}" ] ||
      fail "$run: explain says $said MiB of $category, the run predicts $predicted, and took $was"
  done
  # In bytes, too: all but the transport's staging.
  memory=$(tr -d '\n ' <$run/metrics.json | grep -o '"memory":{.*}}},')
  said=$(grep -o '"predicted":{[^}]*}' <<<"$memory" | grep -oE '"[a-z_-]+":[0-9]+')
  was=$(grep -o '"ledger":{[^}]*}' <<<"$memory" | grep -oE '"[a-z_-]+":[0-9]+' | grep -v staging)
  [ -n "$said" ] && [ "$said" = "$was" ] || fail "$run: metrics.json predicts $said, counts $was"
done
grep -q 'loading  *steps  *evaluation  *saving  *sample' more.txt || fail "explain: phases"
grep -qE 'the most: in (forward|backward)' full.txt || fail "explain: the moment of the peak"
for case in 'llama2-70b 512' 'transformer_lm_gpt3_175 128'; do
  read -r model world <<<"$case"
  "$FSDP" explain --model "$model" --world "$world" --set train.batch="$world" \
    --set train.dtype=bf16 --set data.sequence_length=2048 >large.txt || fail "explain $model"
  grep -q "on $world ranks" large.txt || fail "explain --model $model"
done
# gathers of 5 steps: those of the units, none else (there is no evaluation)
gathers=$(grep -m1 '^  all_gather ' full.txt | awk '{print $2}')
calls=$(grep -A3 '"all_gather"' full/metrics.json | grep -o '"calls": [0-9]*' | cut -d' ' -f2 | head -1)
[ "$calls" = $((5 * gathers)) ] || fail "explain says $gathers gathers a step, 5 steps had $calls"
for line in '^units ' 'blocks.0 .. blocks.2' '(waits for the gather)' 'backward blocks.1' \
  '^collectives of a step'; do
  grep -q -- "$line" full.txt || fail "explain has no line '$line'"
done
explain --world 512 >many.txt
grep -q 'full_shard on 512 ranks' many.txt || fail "explain --world 512"
# A block has 4 matrices of 24 x 24, 3 of 24 x 70 and two norms: 7,392 elements. Each of 512 ranks has a
# multiple of 64, here 64; the rest of 32,768 is padding. The root: two of 257 x 24 and a norm, or two units.
grep -q '^  blocks.0 .. blocks.2  *9  *7392  *25376  *64 ' many.txt || fail "--world 512: blocks: $(cat many.txt)"
grep -q '^  embedding  *1  *6168  *26600  *64 ' many.txt || fail "--world 512: embedding: $(cat many.txt)"
grep -q '^  head  *2  *6192  *26576  *64 ' many.txt || fail "--world 512: head: $(cat many.txt)"
explain --world 512 --set fsdp.root=whole >whole.txt
grep -q '^  root  *3  *12360  *20408  *64 ' whole.txt || fail "--world 512: root: $(cat whole.txt)"
explain --layout fsdp1 >layout.txt
grep -c '^elements per rank in PyTorch FSDP1' layout.txt >count || fail "--layout fsdp1"
grep -q '^  root  *3  *12360 ' layout.txt || fail "--layout fsdp1: not PyTorch's units: $(cat layout.txt)"
explain --layout fsdp2 | grep -c '^elements per rank in PyTorch FSDP2' >count || fail "--layout fsdp2"
explain --set fsdp.wrap=class --set 'fsdp.wrap_classes=[LlamaDecoderLayer, LlamaMLP]' >nested.txt
grep -q 'forward blocks.0, before what is inside' nested.txt && grep -q 'backward blocks.2.mlp' nested.txt ||
  fail "explain of units within units"
# Blocks are no units: backward runs the forward of their parts again, and gathers these again.
parts=(--set fsdp.wrap=class --set 'fsdp.wrap_classes=[LlamaAttention, LlamaMLP]')
explain "${parts[@]}" | grep -c '^  all_gather  *16 ' >count || fail "explain: gathers of parts of blocks"
explain "${parts[@]}" --set train.recompute.mode=full >again.txt
grep -q '^  all_gather  *22 ' again.txt && grep -q 'recompute blocks.2.attention' again.txt ||
  fail "explain of recompute"
explain --set train.buffer_dtype=bf16 | grep -c '^note: train.buffer_dtype is bf16: rotary values' >count ||
  fail "explain prints no remarks"
explain | grep -c 'on 8 ranks' >count || fail "explain without --world"
"$FSDP" explain --model pythia-1b --world 2 >pythia.txt || fail "explain --model pythia-1b"
grep -q '^  all .* 1011781632 ' pythia.txt || fail "explain --model: not the published parameters"

# ---- predicted times: a file of rates, measured rows -----------------------------------------------
cat >rates.json <<'JSON'
{"machine": "a test", "flops_per_s": {"f32": 1e9}, "memory_bytes_per_s": 1e30, "kernel_us": 0, "issue_us": 0,
 "ranks_per_node": 8, "inside_node": {"latency_us": 5000, "bytes_per_s": 1e30},
 "between_nodes": {"latency_us": 0, "bytes_per_s": 1e9}, "host_copy": {"latency_us": 0, "bytes_per_s": 1e30},
 "disk_read": {"latency_us": 0, "bytes_per_s": 2e6}, "disk_write": {"latency_us": 0, "bytes_per_s": 1e6}}
JSON
explain --world 1 --rates rates.json >one.txt
explain --world 2 --rates rates.json >two.txt
# The FLOPs of 6 rows on one rank at 1 GFLOP/s, and no time for anything else. A token has 6 for each weight of
# the products (3 blocks of 7344, the head's 6168); attention has 7 products of 2 x 12 for each of 136 pairs of a head.
ms=$(awk 'BEGIN { printf "%.1f", (6 * 96 * (3 * 7344 + 6168) + 3 * 6 * 2 * 136 * 7 * 24) / 1e6 }')
grep -q "^predicted step: $ms ms = $ms ms computing + 0 s in sums .* + 0 s waiting" one.txt ||
  fail "predicted on one rank: expected $ms ms: $(grep '^predicted' one.txt)"
"$FSDP" memory --config config.yaml --world 1 --rates rates.json >memory.txt || fail "memory --rates"
grep -q "^  as it is .* $ms ms\$" memory.txt && grep -q '^time: predicted, on a test; ' memory.txt || fail "memory --rates: $(cat memory.txt)"
grep -q '^  on a test; of the distinct calls 0 have a row .* 0 were measured' one.txt || fail "rates: $(cat one.txt)"
grep -q '^  all_gather  *9 .* 45.0 ms$' two.txt || fail "nine gathers of 5 ms: $(grep all_gather two.txt)"
# A master and two moments of each parameter, four bytes each.
checkpoint=$(awk '$1 == "all" { bytes = 12 * $3; printf "%.2f MiB of the rank on a node; %.2f s to write, %.2f s to read", bytes / 2 ^ 20, bytes / 1e6, bytes / 2e6; exit }' one.txt)
grep -q "^a checkpoint: $checkpoint on its disk\$" one.txt ||
  fail "a checkpoint: expected $checkpoint, got: $(grep '^a checkpoint' one.txt)"
explain --world 1 --measure --save-rates here.json >measured.txt
explain --world 1 --rates here.json >again.txt
calls=$(grep -c '"kernel":' here.json)
[ "$calls" -gt 30 ] && grep -q "0 have a row .* $calls were measured, 0 are estimated" measured.txt &&
  grep -q "$calls have a row .* 0 were measured, 0 are estimated" again.txt ||
  fail "measured $calls: $(cat measured.txt)"
[ "$(grep '^predicted' measured.txt)" = "$(grep '^predicted' again.txt)" ] ||
  fail "rates that were saved predict something else: $(grep -h '^predicted' measured.txt again.txt)"

# ---- machines by name ------------------------------------------------------------------------------
# A step of 10,000 ranks costs what one costs: processor seconds of the command.
TIMEFORMAT=%U
used=$( { time "$FSDP" explain --model llama3.1-8b --world 10000 --gpu H100 --set train.batch=10000 \
  train.dtype=bf16 data.sequence_length=4096 >far.txt; } 2>&1) || fail "10,000 ranks: $used"
awk -v used="$used" 'BEGIN { exit !(used < 1) }' || fail "10,000 ranks took $used s"
grep -q '^  on an H100, eight in a machine; ' far.txt && grep -q 'this program was never measured on a GPU$' far.txt ||
  fail "explain --gpu: $(grep -A3 '^predicted' far.txt)"
explain --world 16 --gpu A100-40 >near.txt
explain --world 16 --gpu A100-40 --save-rates a100.json >/dev/null
explain --world 16 --gpu A100-40 --rates a100.json >again.txt
cmp -s near.txt again.txt || fail "a machine that was saved says something else: $(diff near.txt again.txt)"
echo '{"like": "A100-40", "machine": "ours", "inside_node": {"bytes_per_s": 1e9}}' >like.json
explain --world 8 --rates like.json | grep -c '^  on ours; ' >count || fail "a file like a machine"
seconds() { awk '/^predicted step/ { print $4 == "s" ? $3 : $4 == "ms" ? $3 / 1e3 : $3 / 1e6 }' "$1"; }
explain --world 64 --rates H100-EFA >median.txt
explain --world 64 --rates H100-EFA --percentile 95 >slow.txt
awk "BEGIN { exit !($(seconds slow.txt) > $(seconds median.txt)) }" || fail "--percentile 95 is no slower"

# ---- the guides: every row of the page -------------------------------------------------------------
rows=0
while IFS='|' read -r _ options said most _; do
  options=${options//\`/} rows=$((rows + 1))
  # shellcheck disable=SC2086  # several words
  "$FSDP" explain $options >guide.txt || fail "explain $options"
  was=$(row guide.txt 'all at once' 1)
  [ "$was" = "${said// /}" ] || fail "guides.md: explain $options: $said, now $was"
  grep -q "the most: in $(xargs <<<"$most")\$" guide.txt || fail "guides.md: explain $options: most in $most"
done < <(grep '^| `--model' "$SOURCE/tools/predict/guides.md")
[ "$rows" -ge 15 ] || fail "guides.md has $rows rows"
rows=0
while IFS='|' read -r _ _ options verdict _; do
  options=${options//\`/} verdict=$(xargs <<<"$verdict") rows=$((rows + 1))
  # shellcheck disable=SC2086  # several words
  "$FSDP" memory $options >guide.txt || fail "memory $options"
  { grep -q "^${verdict%%;*}: " guide.txt && grep -q "; ${verdict#*; }\(, of which cuDNN.*\)\{0,1\}\$" guide.txt; } ||
    fail "guides.md: memory $options: $verdict, now $(tail -1 guide.txt)"
done < <(grep -- '--gpu .* |$' "$SOURCE/tools/predict/guides.md")
[ "$rows" = 8 ] || fail "guides.md has $rows verdicts"

# ---- published formulas --------------------------------------------------------------------------
"$FSDP" memory --formula zero >zero.txt || fail "memory --formula zero"
grep -qE '^  stage3 .* 1\.8750 +1\.7462$' zero.txt || fail "memory says: $(cat zero.txt)"
"$FSDP" memory --formula zero --number N=1 --number psi=1e9 --json | tr -d ' \n' |
  grep -q '"formula":"zero","symbols":{"psi":1000000000.0,"K":12.0,"N":1.0},"bytes":{"baseline":16000000000.0' ||
  fail "memory --json"
"$FSDP" memory --formula nought 2>error.txt && fail "memory took a formula that there is not"
grep -q '^fsdp: --formula nought: expected one of seed002, zero' error.txt || fail "memory: $(cat error.txt)"

# ---- the trace and its table ---------------------------------------------------------------------
grep -q '^collectives of rank 0 in training and validation' full.log &&
  grep -q '^  *calls .*exposed ms' full.log || fail "no table of collectives"
grep -q '^  blocks.1 all_gather ' full.log || fail "no row for the gathers of blocks.1"
grep -q '"name":"memory: activation"' full/trace.rank1.json || fail "no memory curve in the trace"
grep -q 'trace: true' full/config.yaml || fail "--trace is not in the resolved configuration"

# ---- a step as a picture -------------------------------------------------------------------------
"$FSDP" trace full --svg step.svg >trace.txt || fail "trace ended with $?"
grep -q '^step.svg: step 5 of rank 0, [0-9.]* ms; collectives [0-9.]* ms, of which' trace.txt ||
  fail "trace says: $(cat trace.txt)"
for text in '^<svg ' '^</svg>$' '>compute<' '>all_gather<' '>reduce_scatter<' '<title>blocks.1: ' \
  '<title>backward: ' '>A training step on rank 0: step 5<'; do
  grep -q -- "$text" step.svg || fail "the picture has no '$text'"
done
"$FSDP" trace full --svg other.svg --rank 2 --step 2 --width 1500 >trace.txt || fail "trace ended with $?"
grep -q 'width="1500"' other.svg && grep -q 'rank 2: step 2<' other.svg || fail "options of trace"

# ---- compare -------------------------------------------------------------------------------------
"$FSDP" compare full ddp >compare.txt || fail "compare ended with $?"
for line in 'fsdp.strategy  *full_shard  *no_shard' 'training loss' 'tokens/s' 'reduce_scatter' \
  'unsharded parameter' 'all at once'; do
  grep -q -- "$line" compare.txt || { fail "compare has no line '$line'"; cat compare.txt; }
done
"$FSDP" train --config config.yaml --set runtime.run_dir=one fsdp.strategy=no_shard >one.log 2>&1 ||
  { fail "train on one rank"; cat one.log; }
"$FSDP" compare one ddp full >three.txt || fail "compare of three ended with $?"
for line in '^3: full$' 'fsdp.strategy  *no_shard  *no_shard  *full_shard$' \
  '^  tokens/s  *[0-9]*  *[0-9]*  *x [0-9.]*  *[0-9]*  *x [0-9.]*$' '^  all at once .* x 0\.[0-9]*$'; do
  grep -q -- "$line" three.txt || { fail "compare of three has no line '$line'"; cat three.txt; }
done

# ---- mistakes ------------------------------------------------------------------------------------
# check 'regular expression' command...: one line of ours, and not zero
check() {
  local expected=$1
  shift
  "$@" >out 2>err </dev/null && fail "status 0 of: $*"
  [ "$(grep -c '^fsdp: ' err)" = 1 ] && grep -qE "^fsdp: .*($expected)" err ||
    { fail "no '$expected' from: $*"; cat err; }
}
check 'missing\.yaml' "$FSDP" explain --config missing.yaml
check 'layrs.*layers' "$FSDP" explain --config config.yaml --set model.layrs=3
check 'model: expected one of path' "$FSDP" explain
check 'divisor of 8 ranks, got 3' "$FSDP" explain --config config.yaml \
  --set fsdp.strategy=hybrid_shard --set fsdp.shard_size=3
check 'fsdp.units_in_flight: expected at least 2' "$FSDP" explain --model gpt2-124m \
  --set model.tie_embeddings=false --set fsdp.units_in_flight=1 \
  --set fsdp.wrap=class --set 'fsdp.wrap_classes=[Embedding, GPT2Block]'
check 'layout' "$FSDP" explain --config config.yaml --layout fsdp3
check 'nofile.json: ' "$FSDP" explain --config config.yaml --rates nofile.json
check 'expected one of V100-16, .*got "H10"; near: H100' "$FSDP" explain --config config.yaml --gpu H10
check 'config.yaml:1: malformed JSON' "$FSDP" explain --config config.yaml --rates config.yaml
sed 's/"kernel_us": 0/"kernel_us": -1/' rates.json >wrong.json
check 'wrong.json: kernel_us: expected a number from 0, got -1' "$FSDP" explain --config config.yaml --rates wrong.json
sed 's/"kernel_us"/"kernel_ms"/' rates.json >wrong.json
check 'wrong.json: expected a key "kernel_us", got none' "$FSDP" explain --config config.yaml --rates wrong.json
check 'nowhere/r.json' "$FSDP" explain --config config.yaml --save-rates nowhere/r.json
check 'predict: expected one rank, got 2' "$FSDP" bench step --predict --local-ranks 2 --backend cpu
check 'recompute' "$FSDP" bench step --recompute some
check 'world' "$FSDP" explain --config config.yaml --world 0
check 'nowhere: no such folder' "$FSDP" compare full nowhere
mkdir empty
check 'empty: has no config.yaml: not the directory of a run' "$FSDP" compare empty full
check 'runs' "$FSDP" compare full
check 'nowhere: no such folder' "$FSDP" trace nowhere --svg never.svg
check 'ddp: has no trace.rank0.json: expected the directory of a run' "$FSDP" trace ddp --svg never.svg
check 'full: has no trace.rank3.json' "$FSDP" trace full --svg never.svg --rank 3
check 'full: step 6: not in the trace, which has steps 1 to 5' "$FSDP" trace full --svg never.svg --step 6
check 'nowhere/never.svg: cannot create' "$FSDP" trace full --svg nowhere/never.svg
check '--svg' "$FSDP" trace full
check '--step' "$FSDP" trace full --svg never.svg --step 0
check '--width' "$FSDP" trace full --svg never.svg --width 3
mkdir broken && head -c 3000 full/trace.rank0.json >broken/trace.rank0.json
check 'broken/trace.rank0.json:[0-9]*: malformed JSON' "$FSDP" trace broken --svg never.svg
[ ! -e never.svg ] || fail "a refused command wrote a picture"

[ "$failed" = 0 ] && echo "explain and compare: all is well"
exit "$failed"
