# One empty file among many
# why: a part of a job that found nothing writes one
# source: https://github.com/huggingface/datasets/issues/5850
# before: the file is empty: an error
# expect: b.jsonl: the file is empty; it is left out
# expect: [97,98,256]
# expect: b.jsonl: the file is empty, as in the other 1 file
# status: 1
printf '{"text":"ab"}\n' >a.jsonl
: >b.jsonl
: >c.txt
"$FSDP" tokenize --tokenizer bytes --data a.jsonl b.jsonl --set data.pack=examples data.pad_to=longest
"$FSDP" tokenize --tokenizer bytes --data b.jsonl c.txt
