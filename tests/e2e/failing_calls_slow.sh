#!/usr/bin/env bash
# One call of the file system fails once, in a run that begins and in one that goes on: for the text, the
# tokens, the run directory and all that is in it. The start is right all the same, or ends with 1 and the
# next one is right; 78, which nothing starts again, may only be what a wrong name or a missing right gives at
# the first start. Never another hash or model, and nothing unfinished is left.
# Environment: FSDP the program, LYING_FOLDER_LIBRARY what tests/support/lying_folder.cpp became, LIMIT_S how
# long new cases begin (420), SEED which ones (printed).
source "$(dirname "$0")/../support/e2e.sh"
fail() { echo "FAILED: $*"; failed=$((failed + 1)); }

SEED=${SEED:-$((SRANDOM % 1000000))}
RANDOM=$SEED
mkdir base
seq -f 'a line of text, number %.0f' 1 60 >base/text.txt
cat >config.yaml <<'YAML'
model: {model_type: llama, hidden_size: 16, layers: 1, heads: 2}
data: {train: job/text.txt, sequence_length: 16, cache_dir: job/cache}
train: {steps: 12, batch: 4, log_every: 2}
checkpoint: {every: 4, keep: 2}
runtime: {monitor_s: 0, threads: 1, io_retry_s: 0.2, run_dir: job/run}
YAML
train() { "$FSDP" train --config config.yaml --local-ranks 2 --resume auto "$@" >log 2>&1; }
cp -r base job
train || { fail "whole: status $?"; cat log; exit 1; }
mv job whole
# The same run, killed after step 8.
cp -r base job
train --set train.steps=8 train.schedule.total=12 || { fail "half: status $?"; cat log; exit 1; }
rm -r job/run/model job/run/metrics.json
mv job half
errors=(4 5 6 9 11 16 19 71 107 110 112 116 117 127 28 122 24 12 108 0 0)
names=(2 13 30 1)  # ENOENT, EACCES, EROFS, EPERM
# faulty AT ERROR: one start; its status is in $status
faulty() {
  rm -f struck
  LD_PRELOAD=$LYING_FOLDER_LIBRARY LYING_FOLDER=$PWD/job LYING_AT=$1 LYING_ERROR=$2 LYING_ONCE=$PWD/struck \
    LYING_LOG=$PWD/lies train
  status=$?
}
right() {  # WHAT
  local key
  for key in weights_hash optimizer_hash steps; do
    [ -n "$(summary whole/run $key)" ] && [ "$(summary job/run $key)" = "$(summary whole/run $key)" ] || { fail "$1: another $key"; return; }
  done
  cmp -s job/run/model/model.safetensors whole/run/model/model.safetensors || fail "$1: another model"
  [ -z "$(find job -name '*.tmp*' -o -name '.shared-*')" ] || fail "$1: left: $(find job -name '*.tmp*' -o -name '.shared-*')"
}
declare -A calls=() count=()
for kind in base half; do
  rm -rf job; cp -r $kind job
  [ $kind = half ] && export FSDP_RESTARTS=1
  [ $kind = half ] && sed -i 's/^train: .*/train: {steps: 12, batch: 4, log_every: 2, schedule: {total: 12}}/' config.yaml
  : >lies
  faulty 1000000000 5
  calls[$kind]=$(sed -n 's/ calls$//p' lies | tail -1)
  [ "$status" = 0 ] || { fail "$kind: status $status"; cat log; }
  right "$kind"
  unset FSDP_RESTARTS
done
echo "SEED=$SEED: ${calls[base]} calls of a run that begins, ${calls[half]} of one that goes on"
[ "${calls[base]:-0}" -gt 100 ] && [ "${calls[half]:-0}" -gt 100 ] || fail "the calls are not seen"
cases=0 at_once=0
while [ "$SECONDS" -lt "${LIMIT_S:-420}" ] && [ "$failed" -lt 10 ]; do
  kind=$([ $((cases % 2)) = 0 ] && echo base || echo half)
  at=$((RANDOM * 32768 + RANDOM)); at=$((at % calls[$kind]))
  all=("${errors[@]}" "${names[@]}")
  error=${all[RANDOM % ${#all[@]}]}
  rm -rf job; cp -r $kind job
  [ $kind = base ] || export FSDP_RESTARTS=1
  : >lies
  faulty "$at" "$error"
  what="$kind, call $at, error $error ($(sed -n '/calls$/!p' lies | cut -d' ' -f2-))"
  may_be_78=0
  [ $kind = base ] && [[ " ${names[*]} " = *" $error "* ]] && may_be_78=1
  [ "$status" = 0 ] || [ "$status" = 1 ] || { [ "$status" = 78 ] && [ $may_be_78 = 1 ]; } ||
    { fail "$what: status $status"; grep -a "^fsdp" log; }
  count[$status]=$((${count[$status]:-0} + 1))
  if [ "$status" != 0 ]; then
    why=$(grep -a '^fsdp' log)
    FSDP_RESTARTS=1 train || { fail "$what: $status ($why), then $?"; cat log; }
  fi
  right "$what"
  unset FSDP_RESTARTS
  cases=$((cases + 1))
done
echo "SEED=$SEED, $SECONDS s: $cases calls failed; starts that were right at once: ${count[0]:-0}, with 1: ${count[1]:-0}, with 78: ${count[78]:-0}"
[ "$failed" = 0 ] && echo "failing calls: every job came to its end"
[ "$failed" = 0 ]
