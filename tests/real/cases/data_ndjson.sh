# Data files named .ndjson, .jsonlines and .JSONL
# why: each line is a JSON object, as the endings say
# source: https://github.com/ndjson/ndjson-spec
# before: trained on the braces as a text, without a word
# expect: [97,98,256]
# expect: [97,98,256]
# expect: [97,98,256]
# never: 123
for file in rows.ndjson rows.jsonlines ROWS.JSONL; do
  printf '{"text":"ab"}\n' >$file
  "$FSDP" tokenize --tokenizer bytes --data $file --set data.pack=examples data.pad_to=longest
done
