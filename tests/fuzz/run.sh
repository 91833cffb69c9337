#!/usr/bin/env bash
# Runs the libFuzzer targets, side by side: tests/fuzz/run.sh BUILD RUNS NAME...
# Prints executions, their rate and the coverage of each; fails on a crash, a leak or a hang, whose
# input lies in BUILD/corpus then.
set -uo pipefail
build=$1 runs=$2
shift 2
declare -A job=()
# Faster, with the same errors: short stacks of allocations (the input says the rest), less
# memory kept after free, no pattern in new memory; entries of the corpus are all equally likely.
export ASAN_OPTIONS=${ASAN_OPTIONS:-malloc_context_size=2:quarantine_size_mb=8:thread_local_quarantine_size_kb=64:max_malloc_fill_size=0}
for name in "$@"; do
  corpus=$build/corpus/$name
  "$build/fuzz_smoke_$name" "$corpus" || exit 1  # the seeds
  "$build/fuzz_$name" "$corpus" -runs="$runs" -max_len=1200 -entropic=0 -timeout=30 -rss_limit_mb=2048 \
    -print_final_stats=1 -artifact_prefix="$build/corpus/$name-" >"$build/fuzz_$name.log" 2>&1 &
  job[$name]=$!
done
failed=0
for name in "$@"; do
  if wait "${job[$name]}"; then
    coverage=$(grep -o 'cov: [0-9]* ft: [0-9]* corp: [^ ]*' "$build/fuzz_$name.log" | tail -1)
    numbers=$(sed -n 's/^stat::\(number_of_executed_units\|average_exec_per_sec\): */ /p' \
      "$build/fuzz_$name.log" | tr -d '\n')
    read -r executions rate <<<"$numbers"
    echo "fuzz $name: $executions executions, $rate a second, $coverage"
  else
    echo "fuzz $name: FAILED"
    grep -E 'ERROR|runtime error|SUMMARY|Test unit written' "$build/fuzz_$name.log"
    failed=1
  fi
done
exit $failed
