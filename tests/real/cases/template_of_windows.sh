# A template with a byte order mark and Windows' line ends; null and numbers in the fields of rows
# why: Notepad writes the mark; tables have null where a text is missing; answers of arithmetic are numbers
# source: https://github.com/huggingface/datasets/issues/4146
# source: https://huggingface.co/datasets/openai/gsm8k
# before: every row began with the tokens 239, 187, 191; field "hint": expected a string, got null; field "r": expected a string, got number
# expect: "tokens":[81,58,32,49,46,53,48,63,10,65,58,32,52,256]
# expect: "tokens":[81,58,32,97,63,32,40,104,41,10,65,58,32,116,114,117,101,256]
# never: 239
# status: 0
printf '{"q": 1.50, "hint": null, "r": 4}\n{"q": "a", "hint": "h", "r": true}\n' >rows.jsonl
printf '\xef\xbb\xbfQ: {q}?{if hint} ({hint}){end}\r\nA:{>answer} {r}\r\n' >t.template
"$FSDP" tokenize --tokenizer bytes --data rows.jsonl --set data.template=t.template data.objective=sft \
  data.sequence_length=100 data.pad_to=longest
