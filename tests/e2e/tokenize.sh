#!/usr/bin/env bash
# fsdp tokenize: ids, pieces, text, comparison and its exit status; a model trained with a
# tokenizer.json carries it in its folder and generates text with it.
# Environment: FSDP the program, SOURCE the repository.
# Requirements: S1.8.
source "$(dirname "$0")/../support/e2e.sh"
fixtures=$SOURCE/tests/fixtures/tokenizers
qwen=$fixtures/qwen2/tokenizer.json
llama=$fixtures/llama3
tokenize() { "$FSDP" tokenize "$@"; }

# ---- text to ids and back ------------------------------------------------------------------------
same "ids" "39 672 78 733 348" "$(tokenize --tokenizer "$qwen" "Hello world")"
same "two texts" $'39\n72' "$(tokenize --tokenizer "$qwen" H i)"
same "a folder, special tokens" "1307 39" "$(tokenize --tokenizer "$llama" H)"
same "no special tokens" "39" "$(tokenize --tokenizer "$llama" --no-special H)"
same "pieces" '39"H" 672"ell" 78"o" 733" wor" 348"ld"' \
  "$(tokenize --tokenizer "$qwen" --pieces "Hello world")"
same "standard input" "39 72" "$(printf Hi | tokenize --tokenizer "$qwen")"
printf 'Hi' >"$scratch/hi.txt"
same "a file" "39 72" "$(tokenize --tokenizer "$qwen" --file "$scratch/hi.txt")"
same "decode" "Hello world" "$(tokenize --tokenizer "$qwen" --decode "39 672 78 733 348")"
same "decode of ids that there are not" "Hello fsdp: note: $qwen: it has no token 99998, 99999: left out of the text" \
  "$(tokenize --tokenizer "$qwen" --decode "39 672 99999 78 99998" 2>"$scratch/note") $(cat "$scratch/note")"
same "decode, from a pipe" "H" "$(echo 1307 39 | tokenize --tokenizer "$llama" --decode --no-special)"
same "bytes" "72 105" "$(tokenize --tokenizer bytes Hi)"
tokenize --tokenizer "$qwen" --speed --file "$qwen" | grep -q "whole file: .* tokens, .* MB/s" ||
  fail "--speed"
tokens=$(tokenize --tokenizer "$qwen" --speed --file "$qwen" | sed -n 's/.*whole file: .* bytes, \([0-9]*\) tokens.*/\1/p')
row='"library":"other 1.0","way":"encode, whole file","bytes":'$(wc -c <"$qwen")
echo "{\"results\":[{$row,\"tokens\":$tokens,\"warm_MB_per_s\":1e-9},
  {$row,\"tokens\":$((tokens + 1)),\"warm_MB_per_s\":1}]}" >"$scratch/speeds.json"
compared=$(tokenize --tokenizer "$qwen" --speed --file "$qwen" --compare "$scratch/speeds.json")
[ "$(grep -c "other 1.0" <<<"$compared")" = 1 ] || fail "--compare: $compared"
grep -qE "other 1.0: 0.00 MB/s where it was measured, ratio [0-9]{7,}" <<<"$compared" || fail "$compared"
echo '{"results":[{}]}' >"$scratch/wrong.json"
mistake "wrong.json: results: expected a list of rows" \
  tokenize --tokenizer "$qwen" --speed --file "$qwen" --compare "$scratch/wrong.json"

# ---- beside other libraries: a row is printed only where they make as many tokens of the text ----
shared=$SOURCE/../shared
if [ -d "$shared/data/text" ] && [ -d "$shared/data/tokenizers" ]; then
  speeds=$shared/fixtures/tokenizers/throughput.json
  for name in gpt2 gpt_neox_20b llama2_plus_added; do
    tokenize --tokenizer "$shared/data/tokenizers/$name.json" --speed --compare "$speeds" \
      --file "$shared/data/text/tinyshakespeare.txt" --file "$shared/data/text/wikitext-2-test.txt" \
      >"$scratch/log" || fail "--speed --compare with $name: $?"
    rows=$(tr '{' '\n' <"$speeds" | grep "\"tokenizer\": *\"$name\"" |
      grep -cE '"way": *"encode, (line by line|whole file)"')
    [ "$rows" -ge 8 ] || fail "$speeds: $rows rows of $name"
    same "rows of other libraries with the tokens of $name" "$rows" \
      "$(grep -cE '^  .*: [0-9.]+ MB/s where it was measured, ratio [0-9.]+$' "$scratch/log")"
  done
else
  echo "[SKIP] tokenize --compare on whole texts: ../shared/data is not there"
fi

# ---- comparison ----------------------------------------------------------------------------------
tokenize --tokenizer "$qwen" --verify "$fixtures/qwen2/vectors.json" \
  --verify "$fixtures/qwen2/decode.json" >"$scratch/log" || fail "--verify: $(cat "$scratch/log")"
same "files compared" 2 "$(grep -c ' 0 differences$' "$scratch/log")"
tokenize --verify "$fixtures/components.json" >/dev/null || fail "--verify components.json"
tokenize --tokenizer "$qwen" --verify "$llama/vectors.json" >"$scratch/log"
same "status of a difference" 1 $?
grep -q "ids_without_special: expected \[.*\], got \[" "$scratch/log" || fail "no difference shown"

# ---- the sequences that training makes ----------------------------------------------------------
cd "$scratch" || exit 1
printf '%s\n' '{"q": "1+1", "a": "2"}' '{"q": "2+3", "a": "five"}' '{"q": 7}' >sums.jsonl
printf '{q}{>cue}={>answer}{a}\n' >sums.template
rows=(--data sums.jsonl --tokenizer bytes --set data.template=sums.template data.objective=sft data.bad_rows=skip
  data.sequence_length=8)
tokenize "${rows[@]}" >log 2>notes || fail "--data: $(cat notes)"
same "a row with its labels" '{"sequence":0,"tokens":[49,43,49,61,50,256],"labels":[-100,-100,-100,-100,50,256]}' "$(head -1 log)"
same "a row that is cut in its question" '{"sequence":1,"tokens":[50,43,61,102,105,118,101,256],"labels":[-100,-100,-100,102,105,118,101,256]}' \
  "$(sed -n 2p log)"
same "rows" 2 "$(wc -l <log)"
grep -q "note: data.bad_rows: 1 row is skipped; the first is sums.jsonl:3: " notes || fail "a bad row: $(cat notes)"
same "--limit" 1 "$(tokenize "${rows[@]}" --limit 1 2>/dev/null | wc -l)"
tokenize "${rows[@]}" --limit 1 --pieces 2>/dev/null | grep -qF '"pieces":["1","+","1","=","2",""]' || fail "--pieces with --data"
same "padding and its mask" '{"sequence":0,"tokens":[256,256,49,43,49,61,50,256],"labels":[-100,-100,-100,-100,-100,-100,50,256],"mask":[0,0,1,1,1,1,1,1]}' \
  "$(tokenize "${rows[@]}" data.pad=left data.pad_to=length 2>/dev/null | head -1)"
same "a stream" '{"sequence":0,"tokens":[49,43,49],"labels":[49,43,49]}' \
  "$(tokenize --data sums.jsonl --set data.field=q data.sequence_length=3 data.bad_rows=skip 2>/dev/null | head -1)"
mistake "--decode excludes --data" tokenize "${rows[@]}" --decode
mistake "--set data.shuffle=true: data.shuffle has no effect here" tokenize "${rows[@]}" data.shuffle=true
mistake "data.format: synthetic data has no text to tokenize" tokenize --set data.format=synthetic
mistake "--limit: expected --data, --config or --set with it" tokenize --tokenizer bytes --limit 2 x

# ---- mistakes ------------------------------------------------------------------------------------
mistake "--tokenizer: expected" tokenize hello
for other in hello "--file $qwen" --decode --pieces --no-special "--speed --file $qwen"; do
  # shellcheck disable=SC2086
  mistake "excludes --verify" tokenize --verify "$fixtures/components.json" $other
done
for other in hello --pieces --no-special; do
  mistake "excludes --speed" tokenize --tokenizer "$qwen" --speed --file "$qwen" "$other"
done
mistake 'path of a tokenizer.json, got "nowhere"' tokenize --tokenizer nowhere hello
mistake 'expected token ids, got "x"' tokenize --tokenizer "$qwen" --decode "1 x"
mistake "needs a tokenizer" tokenize --verify "$fixtures/qwen2/vectors.json"
mistake "invalid UTF-8 at byte 1" tokenize --tokenizer "$qwen" $'a\xff'
mistake "--speed requires" tokenize --tokenizer "$qwen" --speed
echo '{"model": {"type": "Unigram"}}' >"$scratch/tokenizer.json"
mistake 'tokenizer.json: model.type: unknown model "Unigram"' tokenize --tokenizer "$scratch" x
rm "$scratch/tokenizer.json"

# ---- training and generating ---------------------------------------------------------------------
cp "$qwen" "$scratch/qwen.json"
for i in {1..60}; do echo "line $i of sixty lines, naïve 你好"; done >"$scratch/lines.txt"
cat >"$scratch/config.yaml" <<'YAML'
model: {model_type: llama, hidden_size: 16, layers: 1, heads: 2}
data: {train: lines.txt, tokenizer: qwen.json, sequence_length: 16}
train: {steps: 3, batch: 4}
runtime: {name: tokenize}
sample: {prompt: line, tokens: 4}
YAML
cd "$scratch" || exit 1
if "$FSDP" train --config config.yaml --local-ranks 2 >log 2>&1; then
  grep -q "^tokenizer: qwen.json (1205 tokens)$" log || fail "no line on the tokenizer: $(cat log)"
  grep -q "^sample: line|" log || fail "no sample: $(cat log)"
  model=$(dirname "$(find runs -name config.json)")
  cmp -s qwen.json "$model/tokenizer.json" || fail "the model's folder has no tokenizer.json"
  grep -q '"vocab_size": 1205' "$model/config.json" || fail "vocab_size: $(cat "$model/config.json")"
  grep -q '"eos_token_id": 1200' "$model/config.json" || fail "eos: $(cat "$model/config.json")"
  options="--tokens 20 --temperature 2 --seed 3 --ignore-end"
  text=$("$FSDP" generate "$model" --prompt "naïve 你好" $options)
  [ "${text#naïve 你好}" != "$text" ] || fail "the text does not begin with its prompt: $text"
  iconv -f UTF-8 -t UTF-8 <<<"$text" >/dev/null || fail "the text is not UTF-8: $text"
  same "text on 2 ranks" "$text" \
    "$("$FSDP" generate "$model" --prompt "naïve 你好" $options --local-ranks 2)"
  "$FSDP" generate "$model" --prompt "line" --json --tokens 3 |
    grep -q '"tokenizer": ".*/model/tokenizer.json"' || fail "generate --json names no tokenizer"
  # Fine-tuning takes the folder's own tokenizer and hands it on.
  if "$FSDP" train --set model.path="$model" --set data.train=lines.txt --set train.steps=1 \
    --set data.sequence_length=16 --set runtime.run_dir=tuned >log 2>&1; then
    grep -q "^tokenizer: $model/tokenizer.json (1205 tokens)$" log || fail "tuned: $(cat log)"
    cmp -s qwen.json tuned/model/tokenizer.json || fail "the tuned folder has no tokenizer.json"
  else
    fail "fine-tuning: $(cat log)"
  fi
  mistake "vocabulary mismatch" train --set model.path="$model" --set data.train=lines.txt \
    --set data.tokenizer=bytes --set data.sequence_length=16
else
  fail "train: $(cat log)"
fi

exit "$failed"
