# A compressed file whose name does not say so
# why: a web server compressed it on its way, and it was saved as it came
# source: https://www.twiki.org/cgi-bin/view/Wikilearn/DotGz
# before: gzip -dk rows.jsonl, which gzip refuses: unknown suffix
# expect: convert it: gzip -dc rows.jsonl > rows.unpacked.jsonl
# expect: [97,98,256]
printf '{"text":"ab"}\n' | gzip >rows.jsonl
"$FSDP" tokenize --tokenizer bytes --data rows.jsonl
gzip -dc rows.jsonl >rows.unpacked.jsonl
"$FSDP" tokenize --tokenizer bytes --data rows.unpacked.jsonl --set data.pack=examples data.pad_to=longest
