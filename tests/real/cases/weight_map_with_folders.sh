# An index whose files lie in a folder below
# why: the map's file names are paths below the index
# source: https://github.com/huggingface/transformers/blob/v4.57.1/src/transformers/utils/hub.py (get_checkpoint_shard_files)
# before: weight_map: expected a file name, got "weights/one.safetensors"
# expect: 8 8
# never: expected a file name
model m
mkdir m/weights
length=$(od -An -tu8 -N8 m/model.safetensors | tr -d ' ')
names=$(tail -c +9 m/model.safetensors | head -c "$length" | grep -o '"transformer[^"]*"' |
  sed 's|$|: "weights/one.safetensors"|' | paste -sd,)
mv m/model.safetensors m/weights/one.safetensors
echo "{\"weight_map\": {$names}}" >m/model.safetensors.index.json
"$FSDP" generate m --ids 5 --tokens 2
