#!/usr/bin/env bash
# fsdp generate: greedy tokens equal those of another implementation; sampled ones depend on the
# seed and not on the number of ranks; mistakes end in one clear line.
# Environment: FSDP the program, SOURCE the repository, MPIRUN how to start processes (empty: no MPI).
set -uo pipefail
fixtures=$SOURCE/tests/fixtures/models
failed=0

fail() { echo "FAILED: $*"; failed=1; }
# same WHAT EXPECTED GOT
same() { [ "$2" = "$3" ] || fail "$1: expected '$2', got '$3'"; }


# ---- greedy, token for token ---------------------------------------------------------------------
for folder in "$fixtures"/*; do
  file=$folder/generation.json
  [ -f "$file" ] || continue  # an adapter: tests/e2e/lora.sh
  mapfile -t prompts < <(sed -n '/"prompts"/,/^ \],/p' "$file" | grep -o '\[ *[0-9][^]]*' | tr -d '[ ')
  for i in 0 1; do
    expected=$(sed -n '/"alone"/,$p' "$file" | grep -o '"new_ids": \[[^]]*' | sed -n "$((i + 1))p" |
      sed 's/.*\[//; s/,//g; s/^ *//; s/ *$//')
    [ "$(wc -w <<<"$expected")" = 12 ] || fail "$file: cannot read the expected tokens"
    for ranks in 1 2; do
      got=$("$FSDP" generate "$folder" --ids "${prompts[$i]}" --tokens 12 --ignore-end \
        --local-ranks $ranks)
      same "$(basename "$folder"), prompt $i, $ranks ranks" "$expected" "$got"
    done
  done
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

# ---- longer than the model's 32 positions: cropped, and said -------------------------------------
long=$("$FSDP" generate "$fixtures/gpt2" --ids 5,6,7 --tokens 40 --ignore-end 2>&1)
grep -q "sees the last 32 tokens only" <<<"$long" || fail "the crop is not announced: $long"
same "tokens of a long text" 40 "$(tail -1 <<<"$long" | wc -w)"

# ---- text, with a model that `fsdp train` wrote: the byte tokenizer -------------------------------
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for i in {1..40}; do echo "line $i of forty lines"; done >"$scratch/lines.txt"
cat >"$scratch/config.yaml" <<YAML
model: {model_type: llama, hidden_size: 16, layers: 1, heads: 2}
data: {train: $scratch/lines.txt, validation: $scratch/lines.txt, sequence_length: 16}
train: {steps: 2, batch: 2}
runtime: {name: generate}
YAML
if (cd "$scratch" && "$FSDP" train --config config.yaml --local-ranks 2) >"$scratch/log" 2>&1; then
  model=$(dirname "$(find "$scratch" -name config.json)")
  text=$("$FSDP" generate "$model" --prompt "line 4" --tokens 30 --seed 5 --temperature 0.1)
  [ "${text:0:6}" = "line 4" ] || fail "the text does not begin with its prompt: $text"
  same "text on 2 ranks" "$text" "$("$FSDP" generate "$model" --prompt "line 4" --tokens 30 \
    --seed 5 --temperature 0.1 --local-ranks 2)"
  "$FSDP" generate "$model" --prompt "" --tokens 3 >/dev/null || fail "an empty prompt"
else
  fail "train: $(cat "$scratch/log")"
fi

# ---- JSON and mistakes ---------------------------------------------------------------------------
"$FSDP" generate "$fixtures/gpt2" --ids 5 --tokens 3 --json | grep -q '"new_ids"' || fail "--json"
# mistake 'part of the message' ARGUMENTS...
mistake() {
  local part=$1 output status=0
  shift
  output=$("$FSDP" generate "$@" 2>&1) || status=$?
  { [ "$status" != 0 ] && grep -qF -- "$part" <<<"$output"; } ||
    fail "generate $*: expected '$part', got status $status: $output"
}
mistake "give the prompt as --ids" "$fixtures/gpt2" --prompt hello
mistake "token 97 is not in the model's vocabulary of 97" "$fixtures/gpt2" --ids 96,97 --local-ranks 2
mistake "nowhere/config.json" nowhere --ids 1
mistake "--ids" "$fixtures/gpt2" --ids one

exit "$failed"
