# ~ at the beginning of a path that no shell has seen
# why: in a YAML file, in quotes and behind --set KEY= nothing replaces it
# source: https://docs.python.org/3/library/os.path.html#os.path.expanduser
# before: no such file, no such folder
# expect: 8 8
# expect: 256 259
# expect: "tokens":[256
# expect: run directory:
# never: no such
model m
tokenizer tok
printf '{"text": "hi the"}\n{"text": "the the"}\n' >rows.jsonl
"$FSDP" generate '~/m' --ids 5 --tokens 2
"$FSDP" tokenize --tokenizer='~/tok' 'hi the'
printf 'data: {train: ~/rows.jsonl, tokenizer: ~/tok, pack: examples, sequence_length: 4,
  document_separator: false}\n' >data.yaml
"$FSDP" tokenize --config '~/data.yaml' --set 'data.cache_dir=~/tokens'
[ -d tokens ] && [ ! -e '~' ] || echo 'no such folder'
"$FSDP" train --config data.yaml --steps 1 --batch 1 --set model.model_type=llama model.hidden_size=8 \
  model.layers=1 model.heads=2 "runtime.run_dir=~/run" runtime.monitor_s=0 sample.tokens=0
[ -d run ] || echo "no such run"
