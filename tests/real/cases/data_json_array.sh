# A .json file that holds an array of rows, in one line, indented, or as objects one behind another
# why: json.dump writes it so, jq without -c writes the last one; datasets reads all three
# source: https://huggingface.co/docs/datasets/loading#json
# before: 'expected an object, got array' and 'unexpected end of input'
# expect: [97,98,256]
# expect: [99,100,256]
# expect: [97,98,256]
# expect: [99,100,256]
# expect: [97,98,256]
# expect: [99,100,256]
printf '[{"text":"ab"},{"text":"cd"}]' >one.json
printf '[\n  {\n    "text": "ab"\n  },\n  {\n    "text": "cd"\n  }\n]\n' >array.json
printf '{\n  "text": "ab"\n}\n{\n  "text": "cd"\n}\n' >objects.json
for file in one.json array.json objects.json; do
  "$FSDP" tokenize --tokenizer bytes --data $file --set data.pack=examples
done
