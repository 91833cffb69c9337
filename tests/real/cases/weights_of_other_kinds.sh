# Weights that are a web page, what torch.save writes, GGUF, or empty; metadata that are null
# why: a download needed a login; a file was renamed; writers without metadata write null
# source: https://github.com/invoke-ai/InvokeAI/issues/7009
# source: https://github.com/lyogavin/airllm/issues/137
# source: https://github.com/huggingface/safetensors/blob/main/safetensors/src/tensor.rs (HashMetadata)
# before: not a safetensors file: header of 5789751444030890300 bytes; __metadata__: expected an object, got null
# expect: m/model.safetensors: expected a file of safetensors, got a web page (HTML); fetch the file again: hf download ORG/NAME model.safetensors --local-dir m
# expect: m/model.safetensors: expected a file of safetensors, got tensors of torch.save (a zip with a pickle in it); convert it: python3 -c 'import sys, torch
# expect: m/model.safetensors: expected a file of safetensors, got an empty file
# expect: m/one.safetensors: expected a file of safetensors, got a text that begins with: Entry not found
# expect: m/model.gguf: expected a file of safetensors, got weights of llama.cpp (GGUF)
# expect: m/pytorch_model.bin: expected a file of safetensors, got a web page
# expect: m/model.safetensors.index.json: expected JSON, got a web page (HTML)
# expect: m/config.json:1: malformed JSON: nothing is in it: a download or a copy was not complete
# expect: 8 8
# never: header of
model m
generate() { "$FSDP" generate "${1:-m}" --ids 5 --tokens 2; }
cp -r m good
page='<!DOCTYPE html><html><head><title>Sign in</title></head></html>'
printf '%s' "$page" >m/model.safetensors; generate
printf 'PK\3\4\24\0\0\10\10\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\20\0\0\0archive/data.pkl' >m/model.safetensors; generate
: >m/model.safetensors; generate
rm m/model.safetensors
printf '{"weight_map": {"a": "one.safetensors"}}' >m/model.safetensors.index.json
printf 'Entry not found' >m/one.safetensors; generate
rm m/*.safetensors*
printf 'GGUF\3\0' >m/model.gguf; generate
printf '%s' "$page" >m/pytorch_model.bin; generate
printf '%s' "$page" >m/model.safetensors.index.json; generate
: >m/config.json; generate
length=$(od -An -tu8 -N8 good/model.safetensors | tr -d ' ')
header=$(tail -c +9 good/model.safetensors | head -c "$length" | sed 's/"__metadata__":{[^}]*}/"__metadata__":null/')
while [ $((${#header} % 8)) != 0 ]; do header+=' '; done
{ printf "\\x$(printf %02x $((${#header} & 255)))\\x$(printf %02x $((${#header} >> 8)))\0\0\0\0\0\0"
  printf %s "$header"; tail -c +$((9 + length)) good/model.safetensors; } >new
grep -q '"__metadata__":null' new && mv new good/model.safetensors
generate good
