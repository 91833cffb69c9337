#!/usr/bin/env bash
# fsdp convert and fsdp inspect: Hugging Face folders into the shards of three ranks and back, the
# same to the byte, by processes and by threads; mistakes end in one clear line and leave nothing.
# Environment: FSDP the program, SOURCE the repository, MPIRUN how to start processes (empty: no MPI).
source "$(dirname "$0")/../support/e2e.sh"
source "$SOURCE/tests/support/known_models.sh"
: >err
fixtures=$SOURCE/tests/fixtures/models
shared=$SOURCE/../shared/fixtures/models
runs=0
run() {
  runs=$((runs + 1))
  "$@" >out 2>&1 || { fail "status $? of: $*"; cat out; }
}
# refused 'regular expression' COMMAND...: one line of ours, nothing new in the folder
refused() {
  local expected=$1 before
  shift
  runs=$((runs + 1))
  before=$(ls)
  "$@" >out 2>err && fail "status 0 of: $*"
  [ "$(grep -c '^fsdp: ' err)" = 1 ] || { fail "not one line: $*"; cat err; }
  grep -qE "^fsdp: .*($expected)" err || { fail "no '$expected' from: $*"; cat err; }
  [ "$(ls)" = "$before" ] || { fail "something is left of: $*"; ls; }
}

# ---- into shards and back ------------------------------------------------------------------------
folders=("$fixtures"/*)
if [ -d "$shared" ]; then
  mapfile -t folders < <(known_models "$shared")
else
  echo "[SKIP] conversion of further folders: ../shared/fixtures/models is not there"
fi
[ -n "${MPIRUN:-}" ] || echo "[SKIP] conversion under mpirun: no MPI"
# same FOLDER: `whole` has every file that transformers wrote as it was
same() {
  local name
  for name in model.safetensors config.json generation_config.json; do
    [ ! -f "$1/$name" ] || cmp -s "$1/$name" "whole/$name" || fail "$1/$name came back different"
  done
}
for folder in "${folders[@]}"; do
  [ -d "$folder/base" ] && folder=$folder/base  # of an adapter
  rm -rf shards whole
  run "$FSDP" convert "$folder" shards --shards 3 --local-ranks 3
  [ "$(ls shards | grep -c '^shard-0000[123]-of-00003.safetensors$')" = 3 ] || fail "no 3 shards"
  run "$FSDP" convert shards whole --local-ranks 3
  same "$folder"
  [ -n "${MPIRUN:-}" ] || continue
  run $MPIRUN -n 3 "$FSDP" convert "$folder" processes --shards 3
  diff -r shards processes || fail "processes write other shards than threads: $folder"
  rm -rf processes
done
if [ -n "${MPIRUN:-}" ]; then
  rm -rf whole
  run $MPIRUN -n 3 "$FSDP" convert shards whole
  same "$folder"
fi

# ---- a sharded checkpoint is a model folder as any other, at any number of ranks -----------------
model=$fixtures/llama_gqa_llama3
run "$FSDP" generate "$model" --ids 1,2,3 --tokens 8 --ignore-end
mv out expected
run "$FSDP" convert "$model" three --shards 3
run "$FSDP" generate three --ids 1,2,3 --tokens 8 --ignore-end --local-ranks 2
cmp -s out expected || { fail "the shards generate another text"; cat out expected; }

# ---- dtypes, sizes of files ----------------------------------------------------------------------
run "$FSDP" convert "$model" small --dtype bf16 --max-shard-size 20KB
[ -f small/model.safetensors.index.json ] || fail "no index"
run "$FSDP" inspect small --json
grep -q '"BF16"' out || fail "no bf16"
grep -q '"problem": ""' out || fail "a problem"
run "$FSDP" inspect pythia-1b
grep -q '1,011,781,632' out || fail "pythia-1b has another number of parameters"
run "$FSDP" inspect "$model/config.json" --world 3

# ---- mistakes ------------------------------------------------------------------------------------
: >file
mkdir taken wrong
: >taken/mine
cp "$model/config.json" wrong
cp "$fixtures/gpt2/model.safetensors" wrong
refused 'nowhere: no such folder' "$FSDP" convert nowhere new --local-ranks 2
refused 'taken: is there already' "$FSDP" convert "$model" taken
refused 'file/new: cannot be made' "$FSDP" convert "$model" file/new --local-ranks 2
refused 'do not fit' "$FSDP" convert wrong new --local-ranks 3
refused 'file size: expected one like' "$FSDP" convert "$model" new --max-shard-size five
refused 'cannot write: File too large' bash -c \
  'trap "" XFSZ; ulimit -f 16; exec "$0" "$@"' "$FSDP" convert "$model" new --local-ranks 3
if [ -n "${MPIRUN:-}" ]; then
  refused 'taken: is there already' $MPIRUN -n 2 "$FSDP" convert "$model" taken
fi
run "$FSDP" convert "$model" damaged --shards 2
rm damaged/shard-00002-of-00002.safetensors
refused 'shard-00002-of-00002.safetensors is missing' "$FSDP" generate damaged --ids 1
"$FSDP" inspect wrong >out 2>&1 && fail "inspect found nothing wrong"
grep -q 'missing: model.embed_tokens.weight' out || fail "inspect does not say what is missing"

echo "convert: $runs runs"
exit "$failed"
