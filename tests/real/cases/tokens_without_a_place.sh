# A current folder that cannot be written: there is no place for tokens
# why: containers have a read-only root (readOnlyRootFilesystem), and data folders are shared
# source: https://kubernetes.io/docs/tasks/configure-pod-container/security-context/
# before: data.cache_dir: .cache/tokens: cannot be made, of eval, which has no option of this name
# expect: note: data.cache_dir: .cache/tokens: cannot be made: Not a directory: the tokens are made for this time alone, in a temporary file
# expect: loss
# expect: --cache-dir: .cache/mine: cannot be made
# expect: nothing is left
# status: 0
model m
touch .cache  # for root, too, no folder can be made there
echo "a text of some words" >text.txt
mkdir tmp
TMPDIR=$PWD/tmp "$FSDP" eval m --tokenizer bytes --data text.txt --sequence-length 8
"$FSDP" eval m --tokenizer bytes --data text.txt --sequence-length 8 --cache-dir .cache/mine
[ -z "$(ls tmp)" ] && echo "nothing is left"
