# Weights of F16 with a few buffers of F32
# why: Llama 2's inv_freq are recomputed; the dtype of most bytes is the model's
# source: https://huggingface.co/TheBloke/Llama-2-7B-fp16 (rotary_emb.inv_freq is F32)
# before: the trained model was saved as F32, twice the size
# expect: half: llama
# expect: F16
# never: F32
model whole llama_gqa_llama3
tokenizer tok
"$FSDP" convert whole half --dtype f16
name=model.layers.0.self_attn.rotary_emb.inv_freq
header="{\"$name\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}    "
{ printf "\\x$(printf %02x ${#header})\0\0\0\0\0\0\0%s\0\0\0\0" "$header"; } >half/buffers.safetensors
length=$(od -An -tu8 -N8 half/model.safetensors | tr -d ' ')
names=$(tail -c +9 half/model.safetensors | head -c "$length" | grep -o '"[a-z_]*\.[^"]*"' |
  sed 's|$|: "some.safetensors"|' | paste -sd,)
mv half/model.safetensors half/some.safetensors
echo "{\"weight_map\": {$names, \"$name\": \"buffers.safetensors\"}}" >half/model.safetensors.index.json
printf '{"text": "abc"}\n' >rows.jsonl
"$FSDP" train --model half --data rows.jsonl --steps 1 --batch 1 --set data.sequence_length=4 \
  data.tokenizer=tok data.document_separator=false data.pack=examples runtime.run_dir=run runtime.monitor_s=0 sample.tokens=0 >log || cat log
"$FSDP" inspect run/model --json | grep -o '"F[0-9]*"' | sort -u
