#!/usr/bin/env bash
# fsdp generate: greedy tokens equal those of another implementation; sampled ones depend on the
# seed and not on the number of ranks; mistakes end in one clear line.
# Environment: FSDP the program, SOURCE the repository, MPIRUN how to start processes (empty: no MPI).
source "$(dirname "$0")/../support/e2e.sh"
fixtures=$SOURCE/tests/fixtures/models

# ---- greedy, token for token: alone, and as a batch of prompts of unequal length ------------------
# texts SECTION FILE: the new tokens of each prompt, a line each
texts() {
  sed -n "/\"$1\"/,/^ []}],/p" "$2" | tr -d '\n' | grep -o '"new_ids": \[[^]]*\( \], *\[[^]]*\)*' |
    sed 's/"new_ids": //; s/\], *\[/\n/g' | tr -d '[],' | sed 's/^ *//; s/ *$//; s/  */ /g' | sed '/^$/d'
}
for folder in "$fixtures"/*; do
  file=$folder/generation.json
  [ -f "$file" ] || continue  # an adapter: tests/e2e/lora.sh
  sed -n '/"prompts"/,/^ \],/p' "$file" | grep -o '\[ *[0-9][^]]*\]' | sed 's/.*/{"ids": &}/' \
    >"$scratch/prompts.jsonl"
  expected=$(texts batched "$file")
  [ "$(wc -lw <<<"$expected" | xargs)" = "2 24" ] || fail "$file: cannot read the expected tokens"
  for options in "" "--no-cache" "--local-ranks 3" "--dtype f16" "--local-ranks 2 --strategy no_shard" "--batch 1"; do
    # shellcheck disable=SC2086
    got=$("$FSDP" generate "$folder" --prompts "$scratch/prompts.jsonl" --tokens 12 --ignore-end \
      $options | grep -v '^---')
    same "$(basename "$folder"), batch, $options" "$expected" "$got"
  done
  number=0
  while read -r prompt; do
    number=$((number + 1))
    same "$(basename "$folder"), prompt $number alone" "$(texts alone "$file" | sed -n "${number}p")" \
      "$("$FSDP" generate "$folder" --ids "$(tr -cd '0-9,' <<<"$prompt")" --tokens 12 --ignore-end \
        --local-ranks 2)"
  done <"$scratch/prompts.jsonl"
done

# ---- sampling: the seed decides, not the ranks ---------------------------------------------------
generate() { "$FSDP" generate "$fixtures/gpt2" --ids 5,6,7 --tokens 20 --ignore-end "$@"; }
one=$(generate --temperature 2 --seed 3)
same "number of sampled tokens" 20 "$(wc -w <<<"$one")"
same "sampling on 2 ranks" "$one" "$(generate --temperature 2 --seed 3 --local-ranks 2)"
if [ -n "${MPIRUN:-}" ]; then
  same "sampling under mpirun" "$one" \
    "$($MPIRUN -n 2 "$FSDP" generate "$fixtures/gpt2" --ids 5,6,7 --tokens 20 --temperature 2 \
      --ignore-end --seed 3)"
else
  echo "[SKIP] generate under mpirun: no MPI"
fi
[ "$one" != "$(generate --temperature 2 --seed 4)" ] || fail "another seed gives the same tokens"
same "top-k 1 is greedy" "$(generate)" "$(generate --temperature 2 --top-k 1 --seed 9)"
same "a small top-p is greedy" "$(generate)" "$(generate --temperature 2 --top-p 1e-9 --seed 9)"
[ "$one" != "$(generate --temperature 2 --top-p 0.5 --seed 3)" ] || fail "top-p changes nothing"
same "sampling without cache" "$one" "$(generate --temperature 2 --seed 3 --no-cache)"
same "sampling as the first of a batch" "$one" "$(printf '{"ids": [5, 6, 7]}\n{"ids": [9]}\n' \
  >"$scratch/two.jsonl" && "$FSDP" generate "$fixtures/gpt2" --prompts "$scratch/two.jsonl" --tokens 20 \
  --ignore-end --temperature 2 --seed 3 --local-ranks 2 | sed -n 2p)"

# ---- stop tokens ---------------------------------------------------------------------------------
same "stopped by the sixth or the third token" "$(cut -d' ' -f1-2 <<<"$one")" \
  "$(generate --temperature 2 --seed 3 --stop-ids "$(cut -d' ' -f6,3 --output-delimiter=, <<<"$one")")"
cp -r "$fixtures/gpt2" "$scratch/stops"
chmod -R u+w "$scratch/stops"
echo "{\"eos_token_id\": [96, $(cut -d' ' -f4 <<<"$one")]}" >"$scratch/stops/generation_config.json"
same "stopped by the folder's second end token" "$(cut -d' ' -f1-3 <<<"$one")" \
  "$("$FSDP" generate "$scratch/stops" --ids 5,6,7 --tokens 20 --temperature 2 --seed 3)"

# ---- speed ---------------------------------------------------------------------------------------
generate --stats 2>&1 >/dev/null | grep -qE "3 tokens in .*19 tokens in .* tokens/s; key-value cache" ||
  fail "--stats"
generate --stats --no-cache 2>&1 >/dev/null | grep -q "tokens/s; without cache" || fail "--stats"

# ---- longer than the model's 32 positions: cropped, and said -------------------------------------
long=$("$FSDP" generate "$fixtures/gpt2" --ids 5,6,7 --tokens 40 --ignore-end 2>&1)
grep -q "sees only the last 32" <<<"$long" || fail "the crop is not announced: $long"
same "tokens of a long text" 40 "$(tail -1 <<<"$long" | wc -w)"

# ---- ALiBi bounds no text, and what the weights would cost less in is said --------------------------
cp -r "$fixtures/bloom_padded" "$scratch/bloom"
chmod -R u+w "$scratch/bloom"
sed -i '1s/{/{"seq_length": 32,/' "$scratch/bloom/config.json"
long=$("$FSDP" generate "$scratch/bloom" --ids "$(seq -s, 1 40)" --tokens 5 --ignore-end 2>&1)
same "tokens after a prompt of 40, with BLOOM" 5 "$(tail -1 <<<"$long" | wc -w)"
grep -q "sees only the last 40" <<<"$long" || fail "the crop is not announced: $long"
"$FSDP" convert "$fixtures/gpt2" "$scratch/half" --dtype bf16 >/dev/null || fail "convert"
for options in "" "--dtype bf16"; do
  # shellcheck disable=SC2086
  notes=$("$FSDP" generate "$scratch/half" --ids 5 --tokens 2 $options 2>&1 >/dev/null)
  case $options$notes in
    "fsdp: note: the weights are bf16, the computation is f32: --dtype bf16"* | "--dtype bf16") ;;
    *) fail "notes of half a model, $options: $notes" ;;
  esac
done

# ---- text, with a model that `fsdp train` wrote: the byte tokenizer -------------------------------
for i in {1..40}; do echo "line $i of forty lines"; done >"$scratch/lines.txt"
cat >"$scratch/config.yaml" <<YAML
model: {model_type: llama, hidden_size: 16, layers: 1, heads: 2}
data: {train: $scratch/lines.txt, validation: $scratch/lines.txt, sequence_length: 16}
train: {steps: 2, batch: 2}
runtime: {name: generate}
YAML
if (cd "$scratch" && "$FSDP" train --config config.yaml --local-ranks 2) >"$scratch/log" 2>&1; then
  model=$(dirname "$(find "$scratch/runs" -name config.json)")
  text=$("$FSDP" generate "$model" --prompt "line 4" --tokens 30 --seed 5 --temperature 0.1)
  [ "${text:0:6}" = "line 4" ] || fail "the text does not begin with its prompt: $text"
  same "text on 2 ranks" "$text" "$("$FSDP" generate "$model" --prompt "line 4" --tokens 30 \
    --seed 5 --temperature 0.1 --local-ranks 2)"
  "$FSDP" generate "$model" --prompt "" --tokens 3 >/dev/null || fail "an empty prompt"
  printf 'line 4\nli\n\nforty' >"$scratch/prompts.txt"
  got=$("$FSDP" generate "$model" --prompts "$scratch/prompts.txt" --tokens 30 --seed 5 \
    --temperature 0.1 --local-ranks 2 --ignore-end --json)
  same "rows of JSON" 3 "$(grep -c '^{"prompt_ids":.*"text":' <<<"$got")"
  same "the first of a batch of texts" "$("$FSDP" generate "$model" --prompt "line 4" --tokens 30 \
    --seed 5 --temperature 0.1 --ignore-end --json | grep '"text"' | sed 's/ *"text": //')" \
    "$(head -1 <<<"$got" | grep -o '"text":.*' | sed 's/"text"://; s/}$//')"
else
  fail "train: $(cat "$scratch/log")"
fi

# ---- JSON and mistakes ---------------------------------------------------------------------------
"$FSDP" generate "$fixtures/gpt2" --ids 5 --tokens 3 --json | grep -q '"new_ids"' || fail "--json"
for ids in "" 010 0x5 -1; do
  mistake "expected token ids such as 1,2,3, got \"$ids\"" generate "$fixtures/gpt2" --ids "$ids"
done
mistake "give a --tokenizer (generate also takes prompts as --ids)" generate "$fixtures/gpt2" --prompt hello
mistake "token 97 is not in the model's vocabulary of 97" generate "$fixtures/gpt2" --ids 96,97 --local-ranks 2
mistake "nowhere: no such folder" generate nowhere --ids 1
mistake "gpt2-124m: expected a model's folder: this is a preset" generate gpt2-124m --ids 1
mistake "--ids" generate "$fixtures/gpt2" --ids one
mistake "its tokenizer bytes has 257 tokens, the model 97" generate "$fixtures/gpt2" --ids 1 --tokenizer bytes
mistake 'path of a tokenizer.json, got "nowhere"' generate "$fixtures/gpt2" --ids 1 --tokenizer nowhere
ids=$(seq -s, 1 33)
mistake "--ids: the prompt has 33 tokens, the model has 32 positions" generate "$fixtures/gpt2" --ids "$ids"
mistake "top-p: expected above 0 and at most 1, got 1.5" generate "$fixtures/gpt2" --ids 5 --temperature 1 \
  --top-p 1.5
mistake "top-p: needs a temperature above 0" generate "$fixtures/gpt2" --ids 5 --top-p 0.5
mistake "top-k: needs a temperature above 0" generate "$fixtures/gpt2" --ids 5 --top-k 5 --local-ranks 2
mistake "--stop-ids: token 97 is not in" generate "$fixtures/gpt2" --ids 5 --stop-ids 3,97
echo '{"prompt": "a"}' >"$scratch/unknown.jsonl"
mistake 'unknown.jsonl:1: unknown key "prompt"' generate "$fixtures/gpt2" --prompts "$scratch/unknown.jsonl"
printf '{"ids": [1]}\n{"ids": [99]}\n' >"$scratch/large.jsonl"
mistake "large.jsonl:2: token 99 is not in" generate "$fixtures/gpt2" --prompts "$scratch/large.jsonl"
mistake "none.txt" generate "$fixtures/gpt2" --prompts "$scratch/none.txt"
mistake "--prompts" generate "$fixtures/gpt2" --prompts "$scratch/large.jsonl" --ids 5
mkdir "$scratch/unshifted"
echo '{"model_type": "workshop_gpt", "vocab_size": 9, "hidden_size": 4, "num_layers": 1, "num_heads": 2,
  "dim_feedforward": 4, "shift_labels": false}' >"$scratch/unshifted/config.json"
mistake "shift_labels: false: such a model predicts the token that it sees" generate "$scratch/unshifted" --ids 5

exit "$failed"
