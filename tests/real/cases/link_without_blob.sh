# A snapshot whose files are links to blobs that are not there
# why: a download that was not complete, or a cache that was copied without its blobs
# source: https://github.com/huggingface/huggingface_hub/issues/1738
# before: no model.safetensors or model.safetensors.index.json (there is model.safetensors)
# expect: m/model.safetensors: a link to ../../blobs/0123, which is not there: the download was not complete
# expect: m/tokenizer.json: a link to ../../blobs/4567, which is not there
# expect: m/config.json: a link to ../../blobs/89ab, which is not there
# expect: t/tokenizer_config.json: a link to ../../blobs/01, which is not there
# expect: t/config.json: a link to ../../blobs/23, which is not there
# expect: t/adapter_config.json: a link to ../../blobs/45, which is not there
# never: (there is
# never: 256 259
# status: 1
model m
ln -sf ../../blobs/0123 m/model.safetensors
"$FSDP" generate m --ids 5 --tokens 1
ln -s ../../blobs/4567 m/tokenizer.json
"$FSDP" tokenize --tokenizer m hi
ln -sf ../../blobs/89ab m/config.json
"$FSDP" generate m --ids 5 --tokens 1
tokenizer t
ln -s ../../blobs/01 t/tokenizer_config.json
"$FSDP" tokenize --tokenizer t "hi the"
rm t/tokenizer_config.json
ln -s ../../blobs/23 t/config.json
"$FSDP" tokenize --tokenizer t "hi the"
ln -s ../../blobs/45 t/adapter_config.json
"$FSDP" generate t --ids 5 --tokens 1
