# Rows of JSON in a file named .json.txt
# why: by its ending the file is a text, by its first line it is not
# source: https://jsonlines.org
# before: trained on the braces as a text, without a word
# expect: rows.json.txt: it begins with a row of JSON
# expect: data.format: text takes it as it is
# expect: [97,98,256]
# expect: [123,34,116,101,120,116
printf '{"text":"ab"}\n' >rows.json.txt
"$FSDP" tokenize --tokenizer bytes --data rows.json.txt
for format in jsonl text; do
  "$FSDP" tokenize --tokenizer bytes --data rows.json.txt --set data.format=$format data.pack=examples data.pad_to=longest
done
