#!/usr/bin/env bash
# A run of 200,000 steps beside one of 20,000, on two ranks, as threads and as processes: memory, threads, descriptors, the time
# from the last step to the end and the length of every file but the log are those of the short run.
# Environment: FSDP the program, MPIRUN how to start processes (empty: no MPI), SHORT and LONG the numbers of steps.
source "$(dirname "$0")/../support/e2e.sh"
short=${SHORT:-20000} long=${LONG:-200000}

seq -f 'a line of text, number %.0f' 1 300 >text.txt
seq -f 'another line, number %.0f' 1 40 >held_out.txt
cat >config.yaml <<'YAML'
model: {model_type: llama, hidden_size: 16, layers: 1, heads: 2}
data: {train: text.txt, validation: held_out.txt, sequence_length: 16}
train: {batch: 2, log_every: 1000, spike: {factor: 1000}}
checkpoint: {keep: 2}
sample: {tokens: 0}
runtime: {threads: 1}
YAML

# Of the process that computes rank 0: KiB of memory that no file backs, threads, descriptors.
look() {
  awk '/RssAnon/ {m = $2} /Threads/ {t = $2} END {if (m) printf "%d %d ", m, t}' "/proc/$1/status" 2>/dev/null &&
    find "/proc/$1/fd" -mindepth 1 2>/dev/null | wc -l
}
# run NAME STEPS command...: sets memory and threads (the most that was seen), descriptors (mostly) and end_ms
run() {
  local name=$1 steps=$2 target last=0 now m t d
  : >seen
  shift 2
  "$@" --config config.yaml --set runtime.run_dir="$name" train.steps="$steps" \
    train.eval_every=$((steps / 10)) checkpoint.every=$((steps / 10)) >"$name.log" 2>&1 </dev/null &
  local pid=$!
  target=$pid
  for _ in {1..600}; do [ -s "$name/metrics.jsonl" ] && break; sleep 0.1; done
  [ "$1" = "$FSDP" ] || target=$(pgrep -P "$pid" -f 'train --config' | head -1)
  memory=0 threads=0
  while kill -0 "$pid" 2>/dev/null; do
    read -r m t d < <(look "$target") || { sleep 0.02; continue; }
    [ "${m:-0}" -gt "$memory" ] && memory=$m
    [ "${t:-0}" -gt "$threads" ] && threads=$t
    echo "${d:-}" >>seen
    if [ "$last" = 0 ] && grep -qE "^step +$steps/" "$name.log"; then
      last=$(date +%s%N)
    fi
    sleep 0.02
  done
  now=$(date +%s%N)
  descriptors=$(sort seen | uniq -c | sort -n | tail -1 | awk '{print $2}')  # a checkpoint has files open for a moment
  wait "$pid" || { fail "$name: status $?"; tail -5 "$name.log"; }
  [ "$last" != 0 ] || last=$now  # it was over before anybody looked
  end_ms=$(((now - last) / 1000000))
  echo "$name: $steps steps: $memory KiB, $threads threads, $descriptors descriptors, $end_ms ms from the last step to the end"
}
# NAME and the length of every file but the log and its other forms; of checkpoints the longest.
lengths() {
  (cd "$1" && find . -type f ! -name 'monitor.*' ! -name metrics.jsonl ! -name metrics.csv ! -name trainer_state.json -printf '%P %s\n') |
    sed 's/step-[0-9]*/step-N/' | awk '$2 >= most[$1] {most[$1] = $2} END {for (f in most) print f, most[f]}' | sort
}
# beside NAME command...: the short run beside the long one
beside() {
  local name=$1 least m t d e
  shift
  run "short_$name" "$short" "$@"
  m=$memory t=$threads d=$descriptors e=$end_ms
  run "long_$name" "$long" "$@"
  [ "$memory" -le $((m + 6144)) ] || fail "$name: memory grows with the steps: $m, then $memory KiB"
  [ "$threads" = "$t" ] || fail "$name: $t, then $threads threads"
  [ "$descriptors" = "$d" ] || fail "$name: $d, then $descriptors descriptors"
  [ "$end_ms" -le $((2 * e + 1500)) ] || fail "$name: the end takes longer after more steps: $e, then $end_ms ms"
  lengths "short_$name" >short.files
  lengths "long_$name" >long.files
  [ "$(cut -d' ' -f1 short.files)" = "$(cut -d' ' -f1 long.files)" ] || { fail "$name: other files"; diff short.files long.files; }
  # Numbers of more digits.
  join short.files long.files | awk '$3 > $2 * 1.03 + 64 {print; bad = 1} END {exit bad}' || fail "$name: files that grow with the steps"
}
beside threads "$FSDP" train --local-ranks 2
[ -z "${MPIRUN:-}" ] || beside processes $MPIRUN -n 2 "$FSDP" train

# A timeline is in memory: it ends in time.
"$FSDP" train --config config.yaml --trace --set runtime.run_dir=traced train.steps=26000 checkpoint.every=0 \
  data.validation= checkpoint.best=none >traced.log 2>&1 || { fail "traced: status $?"; tail -5 traced.log; }
grep -qE '^note: the timeline ends after step [0-9]+: a rank keeps 1,000,000 operations$' traced.log || { fail "traced: no note"; tail -5 traced.log; }
echo "timeline: $(stat -c %s traced/trace.rank0.json) bytes, $(grep -E '^note: the timeline' traced.log)"
[ "$failed" = 0 ] && echo "long runs: as much of 200,000 steps as of 20,000"
exit "$failed"
