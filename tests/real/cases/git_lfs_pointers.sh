# Pointers of Git LFS in the place of JSON files and weights
# why: git clone without git lfs leaves them
# source: https://github.com/huggingface/transformers/issues/14561
# before: malformed JSON: expected ... of tokenizer.json and config.json
# expect: m/tokenizer.json: a pointer of Git LFS, not the file: git lfs pull brings it
# expect: m/model.safetensors: a pointer of Git LFS, not the file: git lfs pull brings it
# expect: m/config.json: a pointer of Git LFS, not the file: git lfs pull brings it
# never: malformed
# status: 1
model m
pointer() { printf 'version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n' >"$1"; }
pointer m/tokenizer.json
"$FSDP" tokenize --tokenizer m hi
pointer m/model.safetensors
"$FSDP" generate m --ids 5 --tokens 1
pointer m/config.json
"$FSDP" generate m --ids 5 --tokens 1
