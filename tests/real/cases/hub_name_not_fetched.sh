# A hub's name whose folder is not there
# why: random weights look like a run; every command says how to fetch the model, or that it has its sizes alone
# source: https://huggingface.co/docs/huggingface_hub/guides/cli
# before: train and adopt took the sizes of the name for a model from scratch, with one note
# expect: model.path: bigscience/bloom-560m: no such folder
# expect:   hf download bigscience/bloom-560m --local-dir bigscience/bloom-560m --include
# expect: warning: model.path: EleutherAI/pythia-70m: no such folder here
# expect: path: "EleutherAI/pythia-70m"
# expect: of a model on Hugging Face's hub, these two lines fetch it
# expect: from scratch: the weights are random
# expect: the nearest preset is gpt2-124m
# expect: a name of Hugging Face's hub: the sizes are those of the preset bloom-560m
# expect: bloom, 24 layers, 559.21 M parameters
# expect: llama, 32 layers, 6738.55 M parameters
# expect: all refused
# never: 302.58 M
# never: hf download --
printf 'abc abc abc abc abc abc\n' >text.txt
echo '{"learning_rate": 1e-4}' >args.json
bloom=bigscience/bloom-560m
"$FSDP" train --model $bloom --data text.txt --set model.path=$bloom
"$FSDP" adopt hf args.json --model EleutherAI/pythia-70m --data text.txt
"$FSDP" train --set model.preset=$bloom --data text.txt
tiny --data text.txt --steps 1 --set data.sequence_length=8 train.save=false | head -1
"$FSDP" train --model gpt2 --data text.txt
"$FSDP" explain --model $bloom --data text.txt --world 2 | head -1
"$FSDP" memory --model codellama-7b --data text.txt --world 2 --json >/dev/null
"$FSDP" explain --model codellama-7b --data text.txt --world 8 | head -1
for command in "generate org/name --ids 5" "eval org/name --data text.txt" "convert org/name new" \
  "merge org/name new" "inspect org/name" "verify org/name" "tokenize --tokenizer org/name a" \
  "train --set lora.path=org/name data.train=text.txt" "bench step --preset $bloom" "bench init --preset $bloom"; do
  "$FSDP" $command >log 2>&1 && echo "$command: status 0"
  grep -q 'hf download \(org/name\|bigscience/bloom-560m\) ' log || { echo "$command:"; cat log; exit 3; }
done
echo all refused
