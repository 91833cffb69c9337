# A model of bytes, for transformers
# why: bytes are a BPE without merges; AutoTokenizer of a folder without a tokenizer is an error
# source: https://huggingface.co/docs/tokenizers/api/models (BPE)
# before: no tokenizer in the folder
# expect: tokenizer: bytes (257 tokens)
# expect: run/model/tokenizer.json run/model/tokenizer_config.json
# expect: tokenizer: bytes (257 tokens)
# expect: tokenizer: bytes)
# expect: 60 124 101
printf 'abc abc abc abc abc abc <|endoftext|> abc\n' >text.txt
tiny --data text.txt --steps 1 --set data.sequence_length=8
ls run/model/tokenizer*.json | xargs
"$FSDP" train --model run/model --batch 2 --data text.txt --steps 1 --set data.sequence_length=8 runtime.run_dir=more runtime.monitor_s=0
"$FSDP" eval run/model --data text.txt --sequence-length 8
"$FSDP" generate run/model --prompt a --tokens 2 >log
"$FSDP" tokenize --tokenizer run/model '<|endoftext|>'
