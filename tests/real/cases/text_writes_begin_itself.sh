# Rows that write <s> themselves, where the tokenizer adds one
# why: the model sees two, which it never did; templates of chats write it often
# source: https://github.com/huggingface/transformers/issues/30947
# source: https://github.com/abetlen/llama-cpp-python/issues/1501
# before: nothing was said
# expect: note: rows.jsonl: the text writes "<s>" itself, and the tokenizer adds one: there are two in a row
# expect: note: --prompt: the text writes "<s>" itself
special='{"id": 260, "content": "<s>", "special": true}'
post='{"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
  {"Sequence": {"id": "A", "type_id": 0}}], "pair": [],
  "special_tokens": {"<s>": {"id": "<s>", "ids": [260], "tokens": ["<s>"]}}}'
tokenizer tok "$special" "$(tr -d '\n' <<<"$post")"
printf '{"text": "<s>hi"}\n{"text": "<s>the"}\n' >rows.jsonl
"$FSDP" tokenize --tokenizer tok --data rows.jsonl --set data.pack=examples data.sequence_length=4 \
  data.document_separator=false
"$FSDP" train --data rows.jsonl --steps 1 --batch 1 --set model.model_type=llama model.hidden_size=8 \
  model.layers=1 model.heads=2 data.tokenizer=tok data.pack=examples data.sequence_length=4 \
  data.document_separator=false runtime.run_dir=run runtime.monitor_s=0 sample.tokens=0 >log
"$FSDP" generate run/model --prompt '<s>hi' --tokens 1
