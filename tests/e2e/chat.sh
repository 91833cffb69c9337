#!/usr/bin/env bash
# Chats from end to end: conversations shown, trained on 2 ranks (whole model and LoRA), saved,
# asked, evaluated by role; rows that are broken. The masks: tests/tools/data/chat.
# Environment: FSDP the program, SOURCE the repository.
source "$(dirname "$0")/../support/e2e.sh"

# ---- a model with a tokenizer that has the template's tokens ---------------------------------------
mkdir base
sed 's/<|reserved_special_token_0|>/<|im_start|>/; s/<|reserved_special_token_1|>/<|im_end|>/' \
  "$SOURCE/tests/fixtures/tokenizers/llama3/tokenizer.json" >base/tokenizer.json
echo '{"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>"}' >base/tokenizer_config.json
cat >chats.jsonl <<'ROWS'
{"messages": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]}
{"messages": [{"role": "user", "content": "Say hello."}, {"role": "assistant", "content": "Hello, friend!"}]}
{"conversations": [{"from": "human", "value": "Is water wet?"}, {"from": "gpt", "value": "Yes."}]}
{"prompt": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}, {"role": "user", "content": "Say hello."}], "completion": [{"role": "assistant", "content": "Hello, friend!"}]}
ROWS

# ---- seen before training ---------------------------------------------------------------------------
shown=$("$FSDP" data preview --data chats.jsonl --tokenizer base --set data.chat_template=chatml --row 2 2>notes.txt)
same "a row" $'--- row 2: 25 tokens, 8 trained\n<|im_start|>user\nSay hello.<|im_end|>\n<|im_start|>assistant\n⟦Hello, friend!<|im_end|>\n⟧' \
  "$(head -6 <<<"$shown")"
grep -q 'data.train_on: assistant' notes.txt || fail "no word about the trained tokens: $(cat notes.txt)"
ids=$("$FSDP" data preview --data chats.jsonl --tokenizer base --set data.chat_template=chatml --row 4 --json 2>/dev/null)
same "of a prompt nothing is trained" 8 "$(grep -o '"trained":\[[^]]*' <<<"$ids" | grep -o 1 | wc -l)"

packed=(--data chats.jsonl --tokenizer base --set data.chat_template=chatml data.pack=documents data.sequence_length=64)
shown=$("$FSDP" data preview "${packed[@]}" --row 1 2>notes.txt)
same "two documents" 2 "$(grep -c "^- document: positions 0 to " <<<"$shown")"
same "padding" 1 "$(grep -c "^- padding: [0-9]* tokens" <<<"$shown")"
grep -q 'rows share sequences and do not see each other' notes.txt || fail "no word about packing: $(cat notes.txt)"
ids=$("$FSDP" data preview "${packed[@]}" --row 1 --json 2>/dev/null)
same "positions begin again" 3 "$(grep -o '"positions":\[[^]]*' <<<"$ids" | grep -ow 0 | wc -l)"
same "documents are numbered" 0,1,2 "$(grep -o '"documents":\[[^]]*' <<<"$ids" | grep -o '[0-9]*' | sort -u | paste -sd,)"

# ---- trained, saved, asked -------------------------------------------------------------------------
sizes=(--set model.model_type=llama --set model.hidden_size=64 --set model.layers=2 --set model.heads=4
  --set model.max_positions=128)
common=(--set data.train=chats.jsonl --set data.sequence_length=64 --set data.chat_template=chatml
  --set train.batch=4 --set train.lr=5e-3 --set train.schedule.kind=constant --local-ranks 2)
"$FSDP" train "${sizes[@]}" "${common[@]}" --set data.tokenizer=base --set train.steps=60 \
  --set runtime.run_dir=full >full.log 2>&1 || { fail "train ended with $?"; cat full.log; }
[ -s full/model/chat_template.jinja ] || fail "the model has no chat template"
printf '2+2?\nSay hello.\n' >typed
same "a conversation" $'4\nHello, friend!' "$("$FSDP" generate full/model --chat --tokens 16 <typed 2>/dev/null)"
same "on 2 ranks" $'4\nHello, friend!' "$("$FSDP" generate full/model --chat --tokens 16 --local-ranks 2 <typed 2>/dev/null)"
same "replies to rows" $'--- 1\n4\n--- 2\nHello, friend!\n--- 3\nYes.\n--- 4\nHello, friend!' \
  "$("$FSDP" generate full/model --chat --prompts chats.jsonl --tokens 16 2>/dev/null)"

# From another start: rows whose answers the model does not know yet.
sed 's/Hello, friend!/Good day!/' chats.jsonl >other.jsonl
"$FSDP" train "${common[@]}" --set data.train=other.jsonl --set model.path=full/model --set lora.r=8 \
  --set lora.targets=all-linear --set train.steps=80 --set runtime.run_dir=lora >lora.log 2>&1 ||
  { fail "train with LoRA ended with $?"; cat lora.log; }
same "LoRA" "Good day!" "$("$FSDP" generate lora/adapter --chat --prompt 'Say hello.' --tokens 16 2>/dev/null)"
"$FSDP" eval full/model --data chats.jsonl >loss.txt 2>eval.log || { fail "eval ended with $?"; cat eval.log; }
awk '$1 == "assistant" { a = $2 } $1 == "user" { u = $2 } END { exit !(a < 0.5 && u > 2) }' loss.txt ||
  fail "loss by role: $(cat loss.txt)"

# ---- mistakes --------------------------------------------------------------------------------------
row() { printf '%s\n' "$@" >bad.jsonl; }
trains=(data preview --data bad.jsonl --tokenizer base --set data.format=messages --set data.chat_template=chatml)
user='{"role": "user", "content": "Hi"}'
row "{\"messages\": [$user, {\"role\": \"assistant\", \"content\": \"x\"}]}" "{\"messages\": [$user, {\"role\": \"assitant\", \"content\": \"x\"}]}"
mistake 'bad.jsonl:2: messages[1].role: expected system, user, assistant or tool, got "assitant"; did you mean "assistant"?' "${trains[@]}"
same "skipped" 1 "$("$FSDP" "${trains[@]}" --set data.bad_rows=skip 2>&1 >/dev/null | grep -c 'data.bad_rows: 1 row is skipped')"
row "{\"messages\": [$user, {\"role\": \"assistant\", \"content\": null}]}"
mistake 'bad.jsonl:1: ' "${trains[@]}"
row '{"messages": null}'
mistake 'bad.jsonl:1: messages: expected a list of messages, got null' "${trains[@]}"
row '{"messages": [{"role": "system", "content": "x"}]}'
mistake 'nothing is trained or predicted of its 1 row' train "${sizes[@]}" "${common[@]}" --set data.tokenizer=base \
  --set data.train=bad.jsonl --set data.format=messages
mistake 'no chat template is known' data preview --data chats.jsonl --tokenizer base
mistake 'data.roles: bot: expected system, user, assistant or tool, got robot' "${trains[@]}" --set 'data.roles={bot: robot}'

exit "$failed"
