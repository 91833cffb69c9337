# A folder with a file of JSON, a compressed one and one of Parquet
# why: parts of a data set are saved by different programs; the folder means all of them
# source: https://github.com/huggingface/datasets/issues/7650
# before: trained on the file of JSON alone, without a word
# expect: data.train: parts: 2 files of other kinds are left out, the first is parts/b.jsonl.gz: expected a text of UTF-8, got a file compressed by gzip; convert it: gzip -dk parts/b.jsonl.gz
# expect: [97,98,256]
# expect: note: data.train: parts: 2 files of other kinds are left out
# expect: step 1
# expect: data.train: parts: 1 file of another kind is left out, that is parts/c.parquet
# never: README
mkdir parts
printf '{"text":"ab"}\n' >parts/a.jsonl
printf '{"text":"cd"}\n' | gzip >parts/b.jsonl.gz
printf 'PAR1\x15\x04\x15PAR1' >parts/c.parquet
echo 'These are parts.' >parts/README.md
tokens() { "$FSDP" tokenize --tokenizer bytes --data parts --set data.pack=examples data.pad_to=longest; }
tokens
tiny --steps 1 --set data.train=parts data.pack=examples data.sequence_length=4 train.save=false
gzip -dk parts/b.jsonl.gz
tokens
