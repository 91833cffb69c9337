# Weights that were saved from within a wrapper of the model
# why: DistributedDataParallel, torch.compile and FSDP put a part into the names, also inside of them
# source: https://github.com/pytorch/pytorch/issues/101107
# source: https://discuss.pytorch.org/t/solved-keyerror-unexpected-key-module-encoder-embedding-weight-in-state-dict/1686
# before: every tensor twice, as missing and as unexpected
# expect: names of tensors have module. and _orig_mod. in them, of DistributedDataParallel and torch.compile: fsdp convert --strip-prefix module. --strip-prefix _orig_mod. m NEW
# expect: new: gpt2
# expect: 8 8
# expect: adapter of PEFT, not of a model
# never: missing
# status: 1
# renamed FROM TO SED: a safetensors file with other names.
renamed() {
  local length header
  length=$(od -An -tu8 -N8 "$1" | tr -d ' ')
  header=$(tail -c +9 "$1" | head -c "$length" | sed "$3")
  while [ $((${#header} % 8)) != 0 ]; do header+=' '; done
  { printf "\\x$(printf %02x $((${#header} & 255)))\\x$(printf %02x $((${#header} >> 8)))\0\0\0\0\0\0"
    printf %s "$header"; tail -c +$((9 + length)) "$1"; } >"$2"
}
model plain
mkdir m peft
cp plain/config.json m
cp plain/config.json peft
renamed plain/model.safetensors m/model.safetensors 's/"transformer\.\(h\.[0-9]*\.\)\{0,1\}/"module.transformer.\1_orig_mod./g'
renamed plain/model.safetensors peft/model.safetensors 's/"transformer\./"base_model.model.transformer./g'
"$FSDP" generate m --ids 5 --tokens 2
"$FSDP" convert m new --strip-prefix module. --strip-prefix _orig_mod.
"$FSDP" generate new --ids 5 --tokens 2
"$FSDP" generate peft --ids 5 --tokens 2
