# A configuration, a text and prompts that come from a pipe
# why: job scripts make them on the fly: <(envsubst < template.yaml), or a document of the shell
# source: https://www.gnu.org/software/bash/manual/html_node/Process-Substitution.html
# before: /dev/fd/63: expected a file, got a FIFO (named pipe)
# expect: run directory
# expect: resumed from run/checkpoints/step-1
# expect: /dev/stdin:2: unknown key "train.stps"
# expect: [97,98
# expect: one process can read this, the launcher started 2: put it into a file first
# never: FIFO
# status: 2
yaml() {
  echo "model: {model_type: llama, hidden_size: 8, layers: 1, heads: 2}"
  echo "data: {train: text.txt, tokenizer: bytes, sequence_length: 8}"
  echo "train: {steps: $1, batch: 2}"
  echo "checkpoint: {every: 1}"
  echo "runtime: {run_dir: run, monitor_s: 0}"
}
for i in 1 2 3 4 5 6 7 8 9; do echo "a line of a text, number $i"; done >text.txt
"$FSDP" train --config <(yaml 1)
yaml 2 | "$FSDP" train --config - --resume auto
printf 'train:\n  stps: 1\n' | "$FSDP" explain --config /dev/stdin
"$FSDP" tokenize --tokenizer bytes --data <(printf '{"text":"ab"}\n') --set data.format=jsonl data.pack=examples data.pad_to=longest
yaml 1 | OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 "$FSDP" train --config -
