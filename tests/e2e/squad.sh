#!/usr/bin/env bash
# fsdp eval --task squad: one file of predictions on 1 to 3 ranks as threads and processes, scores
# that follow from the reference answers, the first questions alone, contexts that are cut; mistakes
# in one clear line.
# Requirements: S1.7.
# Environment: FSDP the program, SOURCE the repository, MPIRUN how to start processes (empty: no MPI).
source "$(dirname "$0")/../support/e2e.sh"

# value KEY FILE: of a JSON object with a key a line
value() { sed -n "s/^ *\"$1\": \"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}\$/\1/p" "$2"; }
# questions ID=ANSWER...: a file of SQuAD; an answer is what stands between quotes in JSON
questions() {
  local rows="" pair
  for pair in "$@"; do
    rows+="{\"id\": \"${pair%%=*}\", \"question\": \"What is ${pair%%=*}?\", \"answers\": [{\"text\": \"nothing\", \"answer_start\": 0}, {\"text\": \"${pair#*=}\", \"answer_start\": 0}]},
"
  done
  echo "{\"version\": \"1.1\", \"data\": [{\"title\": \"t\", \"paragraphs\": [{\"context\": \"A number is a number, whatever the number is.\", \"qas\": [
${rows%,*}]}]}]}"
}
questions {1..7}=something >dev.json
cat >config.yaml <<'YAML'
model: {model_type: llama, hidden_size: 24, layers: 2, heads: 3, ffn: 40, max_positions: 256}
data: {train: dev.json, format: squad, objective: sft, sequence_length: 100}
train: {steps: 3, batch: 4, lr: 1e-2}
runtime: {run_dir: run}
YAML
"$FSDP" train --config config.yaml >log 2>&1 || fail "train: $(cat log)"
squad() { "$FSDP" eval run/model --task squad --data dev.json --dtype f64 "$@"; }

# ---- any number of ranks -------------------------------------------------------------------------
squad --predictions one.json --json >one.out 2>one.log || fail "eval: $(cat one.log)"
same "predictions" 7 "$(grep -c '^  "[1-7]": ".*",\{0,1\}$' one.json)"
same "questions" 7 "$(value questions one.out)"
same "exact match" 0.0 "$(value exact_match one.out)"
same "new tokens" 50 "$(value new_tokens one.out)"
for options in "--local-ranks 2" "--local-ranks 3 --batch 2" "--local-ranks 3 --batch 1" \
  "--local-ranks 2 --strategy no_shard --batch 16"; do
  # shellcheck disable=SC2086
  squad --predictions other.json $options >other.out 2>other.log || fail "$options: $(cat other.log)"
  cmp one.json other.json || fail "$options: other predictions"
done
grep -q "^7 questions, 0 with a context that is cut; [0-7] answers\{0,1\} ended by end-of-text (tokenizer: bytes)$" \
  other.out || fail "the table: $(cat other.out)"
if [ -n "${MPIRUN:-}" ]; then
  $MPIRUN -n 2 "$FSDP" eval run/model --task squad --data dev.json --dtype f64 --predictions mpi.json \
    >other.out 2>other.log || fail "under mpirun: $(cat other.log)"
  cmp one.json mpi.json || fail "other predictions under mpirun"
else
  echo "[SKIP] eval --task squad under mpirun: no MPI"
fi

# ---- scores --------------------------------------------------------------------------------------
# What the model says to 2 and 5 is right: their second reference answer. The workshop's rule knows
# the first one alone.
answer() { sed -n "s/^  \"$1\": \"\(.*\)\",\{0,1\}\$/\1/p" one.json; }
questions 1=x "2=$(answer 2)" 3=x 4=x "5=$(answer 5)" 6=x 7=x >dev.json
squad --json --local-ranks 2 >scored.out 2>log || fail "scores: $(cat log)"
same "exact match of 2 of 7" 28.57 "$(value exact_match scored.out | cut -c1-5)"
same "the workshop's exact match" 0.0 "$(value kaust_exact_match scored.out)"
questions 1=x "2=$(answer 2)" 3=x | sed 's/{"text": "nothing", "answer_start": 0}, //' >dev.json
squad --local-ranks 3 >scored.out 2>log || fail "scores: $(cat log)"
same "exact match of 1 of 3, both rules" "33.3333 0.3333" \
  "$(awk '/^exact match/ { print $3 }' scored.out | xargs)"

# ---- the first questions, fewer tokens, less room ---------------------------------------------------
questions {1..7}=something >dev.json
squad --limit 2 --tokens 3 --predictions few.json --local-ranks 3 >/dev/null 2>log || fail "limit: $(cat log)"
same "predictions of two questions" 2 "$(grep -c '^  "[12]": ' few.json)"
cut=$(squad --sequence-length 90 --local-ranks 2 --json 2>&1 >cut.out)
grep -q "^fsdp: note: 7 of 7 contexts are cut at their end: a prompt and its answer of 50 tokens have 90 tokens at most" \
  <<<"$cut" || fail "the cut is not announced: $cut"
same "cut contexts" 7 "$(value cut_contexts cut.out)"

# ---- mistakes ------------------------------------------------------------------------------------
mistake "--task: expected squad, got glue" eval run/model --task glue --data dev.json
mistake "--limit requires --task" eval run/model --limit 3 --data dev.json
mistake "--predictions requires --task" eval run/model --predictions p.json --data dev.json
mistake "--task excludes --stride" eval run/model --task squad --stride 3 --data dev.json
mistake "none.json" eval run/model --task squad --data none.json --local-ranks 2
echo '[{"text": "a"}]' >rows.json
mistake "rows.json:1: expected an object" eval run/model --task squad --data rows.json --local-ranks 2
echo '{"rows": []}' >rows.json
mistake 'rows.json:1: expected an object with "data", as files of SQuAD have' eval run/model --task squad --data rows.json
questions 1=a 2=b 1=c >twice.json
mistake 'twice.json:4: the id "1" also belongs to the question at twice.json:2' eval run/model --task squad --data twice.json
questions 1=a | sed 's/"answers": .*]}]}]}]}/"answers": []}]}]}]}/' >unanswered.json
mistake 'unanswered.json:2: field "answers": expected an answer to compare with, got none' eval run/model \
  --task squad --data unanswered.json --local-ranks 2
mistake "nowhere/p.json: cannot create" eval run/model --task squad --data dev.json --predictions nowhere/p.json --local-ranks 3
mistake "--predictions: run: expected a file, got a folder" eval run/model --task squad --data dev.json --predictions run
mistake "--predictions: ./dev.json: this file holds the questions" eval run/model --task squad --data dev.json \
  --predictions ./dev.json
mistake "--tokens: expected fewer than the 256 tokens of a prompt and its answer, got 256" eval run/model --task squad \
  --data dev.json --tokens 256
mistake "dev.json:2: the question has 38 tokens without its context, and only 37 fit" eval run/model --task squad \
  --data dev.json --sequence-length 87
mistake "--sequence-length: the model has 256 positions, got 257" eval run/model --task squad --data dev.json \
  --sequence-length 257 --local-ranks 2

exit "$failed"
