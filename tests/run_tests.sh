#!/usr/bin/env bash
# Runs the tests of a build folder and counts them; what `make test` calls.
#   tests/run_tests.sh BUILD_DIR [ctest arguments, e.g. -L unit -R core/]
# A test case that cannot run prints a line `[SKIP] reason`. All of them are listed; one that
# matches no line of allowed_skips.txt fails the run under CI=true.
# The last line is alone and always of the form: N passed, N failed, N skipped
# RESULTS=FILE also adds a line for each entry to FILE: entry, seconds, passed, failed, skipped.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=${1:?usage: tests/run_tests.sh BUILD_DIR [ctest arguments]}
shift
begin=$SECONDS

export OMP_WAIT_POLICY=passive
log="$build/Testing/Temporary/LastTest.log"
rm -f "$log"
console=$(mktemp)
trap 'rm -f "$console"' EXIT
# 4: of half a core each, of which most tests take two (fsdp_entry in tools/cmake/Tests.cmake)
ctest --test-dir "$build" -j4 --output-on-failure --no-tests=error --timeout 600 \
  --test-output-size-passed 10000000 --test-output-size-failed 10000000 "$@" | tee "$console"
status=${PIPESTATUS[0]}
if [ ! -s "$log" ]; then
  echo "no test ran"
  printf '0 passed, 1 failed, 0 skipped\n'
  exit 1
fi

# Every ctest entry is a doctest program (its cases are counted) or a script (counts as one).
# The log does not tell an entry that ended with status 77 from a passed one; the console does.
# Prints `SKIP name line` for each [SKIP] line (once per entry), `ENTRY` with the numbers of each
# entry, then `COUNT passed failed`.
counts=$(awk '
  function skip(line) { ++skips; print "SKIP\t" name "\t" line }
  function finish(    ran) {
    ran = doctest ? cases : ok
    if (name in left_out) {
      if (!skips) skip("[SKIP] " name ": gave no reason")
      ran = bad = 0; ok = 1
    }
    ran = ran > skips ? ran - skips : 0
    if (!ok && !bad) bad = 1
    passed += ran; failed += bad
    print "ENTRY\t" name "\t" seconds "\t" ran "\t" bad "\t" skips
  }
  FNR == NR {
    if ($0 ~ /\*\*\*Skipped/) { sub(/^.*Test +#[0-9]+: /, ""); sub(/ .*/, ""); left_out[$0] = 1 }
    next
  }
  /^[0-9]+\/[0-9]+ Testing: / {
    name = $0; sub(/^[^:]*: /, "", name)
    doctest = cases = bad = skips = ok = over = seconds = 0
    delete seen
  }
  /^<end of output>/ { over = 1 }
  !over && /^\[SKIP\]/ && !($0 in seen) { seen[$0] = 1; skip($0) }
  !over && /^\[doctest\] test cases:/ {
    doctest = 1
    line = $0; gsub(/[^0-9|]/, "", line); split(line, n, "|")
    if (n[1] >= cases + bad) { cases = n[2] + 0; bad = n[3] + 0 }
  }
  over && /^Test time =/ { seconds = $4 }
  over && /^Test Passed\.$/ { ok = 1 }
  over && /^".*" end time: / { finish() }
  END { print "COUNT\t" passed + 0 "\t" failed + 0 }
' "$console" "$log")
IFS=$'\t' read -r _ passed failed < <(grep '^COUNT' <<<"$counts")
if [ "$status" != 0 ] && [ "$failed" = 0 ]; then failed=1; fi
[ -z "${RESULTS:-}" ] || sed -n 's/^ENTRY\t//p' <<<"$counts" >>"$RESULTS"

skipped=0
unexpected=0
allowed=$(sed -e 's/[[:space:]]*#.*//' -e '/^[[:space:]]*$/d' "$here/allowed_skips.txt")
while IFS=$'\t' read -r _ name line; do
  if [ "$skipped" = 0 ]; then printf '\nskipped:\n'; fi
  skipped=$((skipped + 1))
  mark=""
  if [ -z "$allowed" ] || ! grep -qE -f <(printf '%s\n' "$allowed") <<<"$line"; then
    unexpected=$((unexpected + 1))
    mark="   <- not in tests/allowed_skips.txt"
  fi
  printf '  %s: %s%s\n' "$name" "$line" "$mark"
done < <(grep '^SKIP' <<<"$counts")
if [ "$unexpected" != 0 ] && [ "${CI:-}" = true ]; then
  echo "$unexpected skips are not in tests/allowed_skips.txt: a failure under CI=true"
  status=1
fi

printf '\nwall time %d s\n' $((SECONDS - begin))
printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
exit "$status"
