# NaN and Infinity in a row that Python wrote
# why: json.dumps writes them, json.loads and datasets read them
# source: https://docs.python.org/3/library/json.html#infinite-and-nan-number-values
# before: malformed JSON: invalid literal
# expect: [97,98,256]
# expect: field "text": expected a string, got NaN
# status: 1
printf '{"text":"ab","score":NaN,"best":-Infinity}\n' >rows.jsonl
"$FSDP" tokenize --tokenizer bytes --data rows.jsonl --set data.pack=examples data.pad_to=longest
printf '{"text":NaN}\n' >rows.jsonl
"$FSDP" tokenize --tokenizer bytes --data rows.jsonl
