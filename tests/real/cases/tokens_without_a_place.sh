# A current folder that cannot be written: there is no place for tokens
# why: containers have a read-only root (readOnlyRootFilesystem), and data folders are shared
# source: https://kubernetes.io/docs/tasks/configure-pod-container/security-context/
# before: data.cache_dir: .cache/tokens: cannot be made, of eval, which has no option of this name
# expect: note: data.cache_dir: .cache: cannot be made: File exists: the tokens are made for this time alone, in a temporary file
# expect: nats per token
# expect: --cache-dir: .cache: cannot be made: File exists
# expect: nothing is left
# status: 0
for i in 1 2 3 4 5 6 7 8 9; do echo "a line of a text, number $i"; done >text.txt
tiny --data text.txt --steps 1 --set data.tokenizer=bytes data.sequence_length=8 checkpoint.every=0 >/dev/null 2>&1
rm -rf .cache
touch .cache  # for root, too, no folder can be made there
mkdir tmp
TMPDIR=$PWD/tmp "$FSDP" eval run --data text.txt --sequence-length 8
"$FSDP" eval run --data text.txt --sequence-length 8 --cache-dir .cache/mine
[ -z "$(ls tmp)" ] && echo "nothing is left"
