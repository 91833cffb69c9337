# A conversion that is ended by a signal, by a full queue or by the kernel
# why: a batch system sends SIGTERM, then SIGKILL; what is half written is as large as a model
# source: https://slurm.schedmd.com/scancel.html
# before: the folder new.PROCESS-0.tmp stayed, whatever ended the command
# expect: stopped by SIGTERM: nothing is left of new
# expect: TERM: 143, 0 parts
# expect: KILL: 137, 1 parts
# expect: TERM: 143, 0 parts
# expect: stopped: 1 parts
# expect: TERM: 143, 1 parts
# A llama with a table of 1 GB of zeros that take no room of the disk.
mkdir m
echo '{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 4000000, "hidden_size": 64,
  "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "tie_word_embeddings": true}' >m/config.json
at=0 header=
tensor() {  # NAME ROWS [COLUMNS]
  local end=$((at + 4 * $2 * ${3:-1}))
  header+="${header:+,}\"model.$1.weight\":{\"dtype\":\"F32\",\"shape\":[$2${3:+,$3}],\"data_offsets\":[$at,$end]}"
  at=$end
}
tensor embed_tokens 4000000 64
for name in self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.o_proj mlp.gate_proj mlp.up_proj mlp.down_proj; do
  tensor layers.0.$name 64 64
done
tensor layers.0.input_layernorm 64
tensor layers.0.post_attention_layernorm 64
tensor norm 64
header="{$header}"
size=${#header}
{ printf "\\x$(printf %02x $((size % 256)))\\x$(printf %02x $((size / 256)))\\0\\0\\0\\0\\0\\0$header"; } >m/model.safetensors
truncate -s $((8 + size + at)) m/model.safetensors

parts() { find . -maxdepth 1 -name 'new.*.tmp' | wc -l; }
start() {  # until it writes its part: a part is known by its lock, which a kill before it would leave out
  "$FSDP" convert m new --dtype bf16 2>&1 &
  for ((i = 0; i < 3000; ++i)); do [ -s "new.$!-0.tmp/.part" ] && return; sleep 0.01; done
}
end() {
  kill -"$1" $!
  wait $! 2>/dev/null
  echo "$1: $?, $(parts) parts"
}
start; end TERM
start; end KILL
start; end TERM
start; stopped=$!; kill -STOP $stopped
echo "stopped: $(parts) parts"
start; end TERM
kill -KILL $stopped; wait $stopped 2>/dev/null
true
