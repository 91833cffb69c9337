#!/usr/bin/env bash
# Which tokens of a row are trained: instructions and questions with their answers alone, padded on
# either side, the same on any number of ranks and in a run that goes on; what two published scripts
# train; random tokens; what is refused.
# Environment: FSDP the program, SOURCE the repository.
# Requirements: S3.15, S4.13.
source "$(dirname "$0")/../support/e2e.sh"

rows='[' questions='' answers=0
for i in {1..15}; do
  answer=$(printf 'a%.0s' $(seq $((i % 5 + 1))))
  answers=$((answers + i % 5 + 2))  # with end-of-text
  rows+="{\"instruction\": \"Say $i.\", \"input\": \"$([ $((i % 3)) = 0 ] && echo "so")\", \"output\": \"$answer\"},"
  questions+="{\"id\": \"$i\", \"question\": \"What is $i?\", \"answers\": [{\"text\": \"$answer\", \"answer_start\": 0}]},"
done
echo "${rows%,}]" >alpaca.json
echo "{\"version\": \"1.1\", \"data\": [{\"title\": \"t\", \"paragraphs\": [{\"context\": \"A number is $answer.\", \"qas\": [${questions%,}]}]}]}" >squad.json
cat >config.yaml <<'YAML'
model: {model_type: llama, hidden_size: 24, layers: 2, heads: 3, ffn: 40, max_positions: 256}
data: {objective: sft, max_seq_length: 240}
train: {steps: 4, batch: 6, lr: 1e-2, log_every: 1, schedule: {kind: constant}}
YAML

# train RUN_DIR RANKS key=value...: keeps the output in RUN_DIR.log
train() {
  local directory=$1 ranks=$2 keys=(); shift 2
  for key in "$@"; do keys+=(--set "$key"); done
  "$FSDP" train --config config.yaml --local-ranks "$ranks" --set "runtime.run_dir=$directory" "${keys[@]}" \
    >"$directory.log" 2>&1
}
trains() { train "$@" || { fail "train $* ended with $?"; cat "$1.log"; }; }
values() { grep -o "\"$2\":[^,}]*" "$1/metrics.jsonl" | cut -d: -f2; }
close() {  # RUN RUN: losses of all steps, up to rounding
  paste <(values "$1" loss) <(values "$2" loss) | awk '
    { d = $1 - $2; if (d < 0) d = -d; if (d > 2e-5 * $1) bad = 1; n++ } END { exit bad || n != 4 }' ||
    fail "$1 and $2: other losses: $(values "$1" loss | tr '\n' ' ')$(values "$2" loss | tr '\n' ' ')"
}
predicted() {  # RUN: metrics.json predicts what the ledger has counted
  local memory said was
  memory=$(tr -d ' \n' <"$1/metrics.json" | grep -o '"memory":{.*')
  said=$(grep -o '"predicted":{[^}]*}' <<<"$memory" | grep -oE '"[a-z_-]+":[0-9]+' | grep -v transport)
  was=$(grep -o '"ledger":{[^}]*}' <<<"$memory" | grep -oE '"[a-z_-]+":[0-9]+' | grep -v transport)
  [ -n "$said" ] && [ "$said" = "$was" ] || fail "$1: predicted $said, counted $was"
}

for format in alpaca squad; do
  task=(data.train=$format.json data.format=$format data.validation=20%)
  trains $format 2 "${task[@]}"
  trains $format-one 1 "${task[@]}" data.pad=left
  close $format $format-one
  # 12 rows are trained, 3 held out: the tokens of two epochs are those of 24 rows.
  [ "$(summary $format true_tokens)" -lt $((2 * (answers + 15))) ] ||  # questions: a blank, too
    fail "$format: $(summary $format true_tokens) tokens, more than the answers have"
  [ "$(summary $format true_tokens)" = "$(summary $format-one true_tokens)" ] || fail "$format: tokens"
  grep -q "^data.validation: 20%: 3 of 15 sequences" $format.log || fail "$format: $(grep ^data $format.log)"
  grep -q "^data.train: $format.json; 15 rows, 0 of them cut to 240 tokens" $format.log ||
    fail "$format: $(grep ^data $format.log)"
  grep -q '^data.objective: sft; rows are padded on the left to the longest' $format-one.log ||
    fail "$format-one: $(grep ^data $format-one.log)"
  predicted $format
  predicted $format-one
done
trains all 2 data.train=squad.json data.format=squad
[ "$(summary all true_tokens)" -ge $((answers + 15)) ] || fail "all: $(summary all true_tokens) tokens"

# ---- the same bits on any number of ranks, and from a checkpoint ---------------------------------------
fixed=(data.train=squad.json data.format=squad data.pad=left fsdp.fixed_order=true train.rows_per_pass=1)
trains fixed 1 "${fixed[@]}"
trains begun 2 "${fixed[@]}" checkpoint.every=2 train.steps=2
"$FSDP" train --resume begun --local-ranks 3 --set train.steps=4 >begun.log 2>&1 || fail "resume: $(cat begun.log)"
for key in weights_hash optimizer_hash true_tokens; do
  [ -n "$(summary fixed $key)" ] && [ "$(summary fixed $key)" = "$(summary begun $key)" ] || fail "begun: another $key"
done
for change in data.objective=lm data.pad=right data.pack=stream data.subset.n=9; do
  "$FSDP" train --resume begun --set train.steps=6 $change >changed.log 2>&1 && fail "goes on with $change"
  grep -qE '^fsdp: .*(--resume: |data\.pad: |data\.objective: )' changed.log || fail "$change: $(cat changed.log)"
done

# ---- weighted sources: the same bits on any number of ranks, from a step within an epoch -------------
for letter in a b c; do for i in {1..9}; do echo "{\"text\": \"$letter$i$letter\"}"; done >$letter.jsonl; done
cat >sources.yaml <<'YAML'
model: {model_type: llama, hidden_size: 24, layers: 1, heads: 3, ffn: 40, max_positions: 64}
data: {sources: [{path: a.jsonl, weight: 5}, {path: [b.jsonl, c.jsonl]}], pack: examples, sequence_length: 16}
train: {steps: 9, rows_per_pass: 1, batch: 4, log_every: 1}
fsdp: {fixed_order: true}
YAML
sources() { local ranks=$1; shift; "$FSDP" train --local-ranks "$ranks" "$@" >sources.log 2>&1 || fail "train $*: $(cat sources.log)"; }
sources 1 --config sources.yaml --set runtime.run_dir=mixed
sources 2 --config sources.yaml --set runtime.run_dir=part --set train.steps=3 --set checkpoint.every=3 --set train.schedule.total=9
grep -q '^data.sources: a.jsonl; 9 rows, .*weight 5: 83.3 % of the sequences, each 2.50 times an epoch$' sources.log ||
  fail "sources: $(grep ^data sources.log)"
sources 3 --resume part --set train.steps=9
for key in weights_hash optimizer_hash true_tokens; do
  [ -n "$(summary mixed $key)" ] && [ "$(summary mixed $key)" = "$(summary part $key)" ] || fail "sources: another $key"
done
"$FSDP" train --resume part --set train.steps=10 --set 'data.sources=[{path: a.jsonl, weight: 4}, {path: [b.jsonl, c.jsonl]}]' \
  >sources.log 2>&1 && fail "goes on with another weight"
grep -q '^fsdp: --resume: .*tokens of data.train' sources.log || fail "another weight: $(cat sources.log)"

# ---- what others train -----------------------------------------------------------------------------------
trains kaust 2 data.train=squad.json data.format=squad data.objective=kaust_compat data.pad=left
grep -q '^note: data.objective: kaust_compat: a label is learnt from a position of the prompt' kaust.log ||
  fail "kaust_compat is not explained"
predicted kaust
trains copied 2 data.train=alpaca.json data.format=alpaca data.objective=compat_all
[ "$(summary copied true_tokens)" = $((4 * 6 * 239 - 3 * 239)) ] ||
  fail "compat_all trains $(summary copied true_tokens) labels"  # the third batch has three rows
predicted copied
trains short 2 data.train=alpaca.json data.format=alpaca data.template=alpaca_short data.objective=mask_pad
grep -q '^note: data.objective: mask_pad: end-of-text is the padding token' short.log || fail "mask_pad is not explained"
trains torch 2 data.train=squad.json data.format=squad data.shuffle_rule=torch data.set_epoch=false train.seed=7
random=(data.format=synthetic data.objective=lm data.sequence_length=16 model.vocab_size=32000 model.layers=1 train.batch=8)
trains random 2 "${random[@]}"
for ranks in 1 4; do
  trains random-$ranks $ranks "${random[@]}"
  close random random-$ranks
done
grep -qE '^making batches: [0-9.]+ ms a step, [0-9.]+ % of it hidden behind the steps$' random.log ||
  fail "no word about batches: $(tail -5 random.log)"
values random loss | head -1 | awk '{ d = $1 - log(32000); if (d < 0) d = -d; exit !(d < 0.4) }' ||
  fail "random tokens: the first loss is $(values random loss | head -1), not ln 32000"

# ---- files of fairseq-preprocess: 41 lines "4 5 ... </s>" as u16, blocks of 16, a short one -----------------
bytes() { local value=$1 i; for ((i = 0; i < $2; ++i)); do printf "\\x$(printf %02x $((value >> (8 * i) & 255)))"; done; }
{ printf 'MMIDIDX\0\0'; bytes 1 8; bytes 8 1; bytes 41 8
  for i in {0..40}; do bytes 6 4; done
  for i in {0..40}; do bytes $((12 * i)) 8; done; } >lines.idx
for i in {0..40}; do for token in 4 5 6 $((7 + i % 3)) 20 2; do bytes $token 2; done; done >lines.bin
fairseq=(data.format=fairseq data.train=lines.bin data.objective=lm data.sequence_length=16 model.vocab_size=24
  model.model_type=transformer_lm_gpt3 model.ffn=0 data.shuffle=false train.batch=16 train.steps=4)
trains fairseq 2 "${fairseq[@]}"
trains fairseq-one 1 "${fairseq[@]}"
close fairseq fairseq-one
for i in {1..20}; do echo "$i 1"; done >dict.txt  # and four special ids
trains fairseq-dict 1 "${fairseq[@]/vocab_size=24/vocab_size=0}"
cmp -s fairseq-dict/model/model.safetensors fairseq-one/model/model.safetensors || fail "fairseq-dict: another model"
rm dict.txt
# Blocks of whole sentences: one of 16 tokens has two lines of 6, the last one has one.
for mode in complete complete_doc; do
  trains $mode 2 "${fairseq[@]}" data.sample_break_mode=$mode
  [ "$(summary $mode true_tokens)" = $((2 * (16 * 12 + 4 * 12 + 6))) ] || fail "$mode: $(summary $mode true_tokens) tokens"
done
cmp -s complete/model/model.safetensors complete_doc/model/model.safetensors || fail "complete_doc: another model, without documents"
trains eos 2 "${fairseq[@]}" data.sample_break_mode=eos
trains eos-one 1 "${fairseq[@]}" data.sample_break_mode=eos data.pad_to=length
close eos eos-one
grep -q '^data.train: lines.bin; 246 tokens in 41 sentences, 41 blocks (eos)$' eos.log || fail "eos: $(grep ^data eos.log)"
train long 1 "${fairseq[@]/sequence_length=16/sequence_length=5}" data.sample_break_mode=eos && fail "sentences that are too long are accepted"
grep -q 'lines.bin: sentence 1: 6 tokens, more than data.sequence_length, 5; data.bad_rows: skip leaves such' long.log ||
  fail "a long sentence: $(cat long.log)"
[ "$(summary fairseq true_tokens)" = $((4 * 246)) ] || fail "fairseq: $(summary fairseq true_tokens) tokens"
grep -q '^data.train: lines.bin; 246 tokens in 41 sentences$' fairseq.log || fail "fairseq: $(grep ^data fairseq.log)"

# ---- explain and memory know the keys; refused -----------------------------------------------------------
for command in explain memory; do
  "$FSDP" $command --config config.yaml --world 2 --set data.pad=left --set data.train=squad.json \
    --set data.format=squad >$command.txt 2>&1 || fail "$command: $(cat $command.txt)"
  "$FSDP" $command --config config.yaml --world 2 --set data.pack=stream >$command.txt 2>&1 &&
    fail "$command accepts keys that contradict each other"
done
refused() {  # PATTERN key=value...
  local pattern=$1; shift
  train refused 2 "$@" && fail "accepted: $*"
  [ "$(grep -c '^fsdp: ' refused.log)" = 1 ] && grep -qE "$pattern" refused.log || fail "$*: $(cat refused.log)"
}
refused 'data.objective: sft: expected rows with an answer' data.train=config.yaml
refused 'data.objective: sft: expected data.pack: examples or documents, got stream' data.train=squad.json data.pack=stream
refused 'data.pad: left has no effect with data.pack: stream' data.objective=lm data.pad=left data.train=squad.json
refused 'alpaca.json:1: expected an object' data.train=alpaca.json data.format=squad
refused 'data.validation: expected a share between 0% and 100%' data.train=squad.json data.format=squad data.validation=200%
refused 'data.train: .* has no effect with data.format: synthetic' data.format=synthetic data.objective=lm data.train=squad.json
train twice 2 data.train=squad.json data.format=squad data.MAX_LENGTH=100 data.max_length=90 || fail "$(cat twice.log)"
grep -q 'data.sequence_length: --set data.max_length=90 counts, and not --set data.MAX_LENGTH=100' twice.log ||
  fail "two values of a key: $(cat twice.log)"
exit $failed
