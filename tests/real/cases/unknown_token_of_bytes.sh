# A byte-level tokenizer whose unk_token is not in its vocabulary
# why: every byte has a token, so it is never needed; the library reads such a file
# source: https://github.com/huggingface/tokenizers/issues/1206
# before: model.unk_token: "<unk>" is not in the vocabulary
# expect: 256 259
tokenizer tok
sed -i 's/"type": "BPE", /"type": "BPE", "unk_token": "<unk>", /' tok/tokenizer.json
"$FSDP" tokenize --tokenizer tok "hi the"
