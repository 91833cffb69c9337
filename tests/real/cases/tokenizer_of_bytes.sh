# A folder that holds tokenizer.json alone
# why: the tokenizer of the cases is read as it is made
# source: https://huggingface.co/docs/tokenizers/api/models
# before: the same
# expect: 256 259
tokenizer tok
"$FSDP" tokenize --tokenizer tok "hi the"
