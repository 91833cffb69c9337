#!/usr/bin/env bash
# Shows that every barrier, wait for a copy and edge between streams of kernels/cuda is needed, and
# the waits of the transports that call it: leaves them out one by one, runs the tests that reach
# the place, shortest first, and expects one to fail or to hang. Those that no test notices are
# listed as survivors; one is an error unless its line in the source says why: `// survives: reason`.
# So is a place that no test reaches. What can be left out: scheduler.h, edges.h, edges.sed. The waits
# of the FSDP schedules: tests/comm/fsdp/survivors.sh.
#   tests/cuda_emulator/mutations.sh [part of a place's name, as kernels/cuda/norm.cu or :57]
# Environment: TEST_CUDA_EMULATOR, TEST_CUDA_RANKS the programs, SOURCE the repository, JOBS how
# many places are tried at a time.
set -uo pipefail
export TEST_CUDA_EMULATOR=${TEST_CUDA_EMULATOR:-build/test_cuda_emulator}
export TEST_CUDA_RANKS=${TEST_CUDA_RANKS:-$(dirname "$TEST_CUDA_EMULATOR")/test_cuda_ranks}
export SOURCE=${SOURCE:-.}
jobs=${JOBS:-$(nproc)}
part=${1:-}
work=$(mktemp -d)
export work
trap 'rm -rf "$work"' EXIT
failed=0

# run_test TEST [doctest arguments]: a test is a source file, tests/...
run_test() {
  local program=$TEST_CUDA_EMULATOR test=$1
  shift
  [[ $test == */ranks/* ]] && program=$TEST_CUDA_RANKS
  "$program" --source-file="*/$test" "$@" >/dev/null 2>&1
}

# reach TEST: which places it reaches, and in how many milliseconds.
reach() {
  local begin=${EPOCHREALTIME/./} name=${1//\//_}
  CUDA_EMULATOR_PLACES=$work/$name.places run_test "$1" ||
    echo "FAILED: $1 fails with everything in place" | tee -a "$work/failures"
  touch "$work/$name.places"  # it may reach none
  echo "$(((${EPOCHREALTIME/./} - begin) / 1000)) $1" >"$work/$name.time"
}

# try PLACE i of n: adds "PLACE<tab>test that notices, or nothing" to the outcomes.
# Three times: on a busy machine a race may have its other outcome.
try() {
  local place=$1 by="" ms test
  while read -r ms test; do
    grep -qxF "$place" "$work/${test//\//_}.places" || continue
    if ! CUDA_EMULATOR_SKIP=$place run_limited $((ms / 100 + 20)) "$test"; then
      by=$test
      break
    fi
  done < <(cat "$work/times" "$work/times" "$work/times")
  printf '%s\t%s\n' "$place" "$by" >>"$work/outcomes"
  echo "place $2 of $3: $place: ${by:-SURVIVES}"
}

run_limited() {
  timeout -k 5 "$1" bash -c 'run_test "$0" --abort-after=1' "$2" 2>/dev/null  # that it crashed
}
export -f run_test reach try run_limited

# Every place that the sources have, as file:line.
all_places() {
  cd "$SOURCE" || exit
  grep -nE '(__syncthreads|__syncwarp|cp_async_wait)(_[a-z]+)?(<.*>)?\(' \
    kernels/cuda/*.cu kernels/cuda/*.h | grep -vE ':[0-9]+: *//|kernels/cuda/intrinsics.h'
  local file
  for file in kernels/cuda/*.cpp comm/*.cpp; do
    sed -E -f tests/cuda_emulator/edges.sed "$file" | grep -nE \
      'FSDP_(KEPT|UNLESS_LEFT_OUT)\(|\b(cudaStreamWaitEvent|cuda(Event|Stream)(Query|Synchronize))\(' |
      grep -vE '^[0-9]+: *//' | sed "s|^|$file:|"
  done
}

(cd "$SOURCE" && ls tests/kernels/cuda/*_test.cpp tests/cuda_emulator/*_test.cpp \
  tests/cuda_emulator/ranks/*_test.cpp) |
  grep -vE '/(cudnn_support|budget)_test.cpp' >"$work/tests"  # cuDNN itself; what counts waits, and sees no result
xargs -P "$jobs" -I{} bash -c 'reach "$1"' - {} <"$work/tests"
cat "$work"/*.time | sort -n >"$work/times"
cat "$work"/*.places | sort -uV >"$work/reached"
grep -E '^(kernels/cuda|comm)/' "$work/reached" | grep -F -- "$part" >"$work/places"
total=$(wc -l <"$work/places")
touch "$work/outcomes"

nl -w 1 -s $'\t' "$work/places" | tr '\n' '\0' |
  xargs -0 -P "$jobs" -I{} bash -c 'IFS=$'"'\t'"' read -r i place <<<"$1"; try "$place" "$i" "$2"' \
    - {} "$total"

while IFS=: read -r file line _; do
  grep -q "^$file:$line " "$work/reached" && continue
  echo "FAILED: no test reaches $file:$line"
  failed=1
done < <(all_places | grep -F -- "$part")

noticed=0
survivors=0
while IFS=$'\t' read -r place by; do
  if [ -n "$by" ]; then
    noticed=$((noticed + 1))
    continue
  fi
  survivors=$((survivors + 1))
  where=${place%% *}
  line=$(sed -n "${where##*:}p" "$SOURCE/${where%:*}")
  reason=${line##*// survives: }
  if [ "$reason" = "$line" ]; then
    echo "FAILED: no test notices that this is left out: $place"
    failed=1
  else
    echo "survivor: $place: $reason"
  fi
done < <(sort -V "$work/outcomes")
[ -s "$work/failures" ] && failed=1
[ "$total" -gt 0 ] && [ "$((noticed + survivors))" = "$total" ] || failed=1
echo "mutations: $total places, $noticed noticed, $survivors survivors"
exit "$failed"
