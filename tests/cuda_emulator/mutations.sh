#!/usr/bin/env bash
# Shows that every barrier, wait for a copy and edge between streams of kernels/cuda is needed: leaves
# them out one by one, runs the tests that reach the place, and expects one to fail. A survivor is an
# error unless its line in the source says why: `// survives: reason`.
#   tests/cuda_emulator/mutations.sh [part of a test file's name]
# Environment: TEST_CUDA_EMULATOR the program, SOURCE the repository.
set -uo pipefail
program=${TEST_CUDA_EMULATOR:-build/test_cuda_emulator}
source=${SOURCE:-.}
places=$(mktemp)
trap 'rm -f "$places"' EXIT
tried=0
failed=0
declare -A noticed

for file in "$source"/tests/kernels/cuda/*"${1:-}"*_test.cpp; do
  filter="--source-file=*/kernels/cuda/$(basename "$file")"
  : >"$places"
  if ! CUDA_EMULATOR_PLACES=$places "$program" "$filter" >/dev/null; then
    echo "FAILED: $(basename "$file") fails with all barriers in place"
    failed=1
  fi
  while read -r place; do
    [ "${noticed[$place]:-}" = yes ] && continue
    if CUDA_EMULATOR_SKIP=$place timeout 120 "$program" "$filter" --abort-after=1 >/dev/null 2>&1; then
      noticed[$place]=no
    else
      noticed[$place]=yes
    fi
  done <"$places"
done

for place in "${!noticed[@]}"; do
  tried=$((tried + 1))
  [ "${noticed[$place]}" = yes ] && continue
  where=${place%% *}
  line=$(sed -n "${where##*:}p" "$source/${where%:*}" 2>/dev/null)
  reason=${line##*// survives: }
  if [ "$reason" = "$line" ]; then
    echo "FAILED: no test notices that this is left out: $place"
    failed=1
  else
    echo "survivor: $place: $reason"
  fi
done
echo "mutations: $tried places"
exit "$failed"
