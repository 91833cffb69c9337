#!/usr/bin/env bash
# Enforces the size budgets and that every source file has its test.
#   tests/lint/size_budget.sh [--report] [ROOT]    prints path:line: message, exits 1 on any
# Hard limits: file 600 lines (comm/fsdp 400), host function 60, function in a CUDA file 150; all of
# tests/fixtures 12,000,000 bytes; the C++ and CUDA of the product, without examples and recipes, product_lines; tests with
# their scripts, test_lines.
# --report (make size) also lists what is over the soft ones: file 300, function 30 (CUDA 100).
# A source `core/ops/norm.cpp` is covered by a test below tests/core (comm: also tests/mpi) whose name
# contains `norm`, `tools/train/trainer.cpp` by one in tests/tools/train or tests/e2e;
# `parallel_pool.cpp` also by `parallel_test.cpp`; otherwise a line `source: test` in covered_by.txt
# says where. *_absent.cpp stubs are exempt.
set -uo pipefail
product_lines=${PRODUCT_LINES:-110400}
test_lines=${TEST_LINES:-97300}
report=0
if [ "${1:-}" = --report ]; then report=1; shift; fi
here=$(cd "$(dirname "$0")" && pwd)
cd "${1:-$here/../..}" || exit 2

mapfile -t files < <(find core kernels models comm optim tools tests CMakeLists.txt Makefile -type f \
  \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' -o -name '*.sh' -o -name '*.py' \
     -o -name '*.cmake' -o -name CMakeLists.txt -o -name Makefile \) 2>/dev/null | sort)
mapfile -t sources < <(printf '%s\n' "${files[@]}" | grep -E '\.(h|cpp|cu|cuh)$')

file_sizes() {
  [ "${#files[@]}" = 0 ] || awk -v report="$report" '
    function check(path, lines,    hard) {
      hard = path ~ /^comm\/fsdp\// ? 400 : 600
      if (lines > hard) print path ":" lines ": " lines " lines, at most " hard
      else if (report && lines > 300) print "soft " path ": " lines " lines"
    }
    FNR == 1 && NR > 1 { check(path, lines) }
    { path = FILENAME; lines = FNR }
    END { check(path, lines) }' "${files[@]}"
}

function_sizes() {
  [ "${#sources[@]}" = 0 ] || awk -f "$here/functions.awk" "${sources[@]}" |
    awk -F '\t' -v report="$report" '{
      cuda = $1 ~ /\.cuh?:/
      hard = cuda ? 150 : 60; soft = cuda ? 100 : 30
      if ($3 > hard) print $1 ": function " $2 " has " $3 " lines, at most " hard
      else if (report && $3 > soft) print "soft " $1 ": function " $2 ", " $3 " lines"
    }'
}

fixture_sizes() {
  [ ! -d tests/fixtures ] || find tests/fixtures -type f -printf '%s\n' | awk '{ bytes += $1 }
    END { if (bytes > 12000000) print "tests/fixtures:1: " bytes " bytes, at most 12000000" }'
}

# total NAME LIMIT FILE...
total() {
  local name=$1 limit=$2 lines
  shift 2
  lines=$(cat /dev/null "$@" | wc -l)
  [ "$lines" -le "$limit" ] || echo "$name:1: $lines lines, at most $limit: take as many lines away as you add, or" \
    "raise the number in tests/lint/size_budget.sh in the commit that says why"
  [ "$report" = 0 ] || echo "soft $name: $lines lines, at most $limit"
}

totals() {
  mapfile -t product < <(printf '%s\n' "${sources[@]}" | grep -vE '^(tests|tools/examples|tools/recipes)/')
  mapfile -t tests < <(printf '%s\n' "${files[@]}" | grep '^tests/')
  total product "$product_lines" "${product[@]}"
  total tests "$test_lines" "${tests[@]}"
}

coverage() {
  local listed=tests/lint/covered_by.txt
  { [ ! -f "$listed" ] || sed -n 's/^\([^#: ][^: ]*\): *\([^ ]*\).*/listed \1 \2/p' "$listed"
    find tests -type f \( -name '*_test.cpp' -o -name '*.sh' \) 2>/dev/null | sed 's/^/test /'
    printf '%s\n' "${sources[@]}" | grep -E '^(core|kernels|models|comm|optim|tools)/.*\.(cpp|cu)$' |
      sed 's/^/source /'
  } | awk -v listed_in="$listed" '
    $1 == "listed" { by[$2] = $3 }
    $1 == "test" {
      exists[$2] = 1
      name = $2; sub(/.*\//, "", name); sub(/(_slow)?(_test)?[.](cpp|sh)$/, "", name)
      names[$2] = name
    }
    $1 == "source" {
      present[$2] = 1
      if ($2 ~ /_absent[.]cpp$/) next
      stem = $2; sub(/.*\//, "", stem); sub(/[.](cpp|cu)$/, "", stem)
      layer = $2; sub(/\/.*/, "", layer)
      room = $2; sub(/\/[^\/]*$/, "", room)
      home = layer == "tools" ? room : layer
      place = "^tests/" home "/"
      if (layer == "comm") place = "^tests/(comm|mpi)/"
      if (layer == "tools") place = "^tests/(" room "/[^/]*$|e2e/)"
      for (test in names)
        if (test ~ place && (index(names[test], stem) || index(stem "_", names[test] "_") == 1)) next
      if (!($2 in by)) print $2 ":1: no test below tests/" home " is named after it, and " listed_in " does not say which one covers it"
    }
    END {
      for (source in by) {
        if (!(source in present)) print listed_in ":1: " source " is not there any more"
        else if (!(by[source] in exists)) print listed_in ":1: " source ": the test " by[source] " is not there"
      }
    }' | sort
}

result=$(file_sizes; function_sizes; totals; fixture_sizes; coverage)
grep '^soft ' <<<"$result" | sed 's/^soft /over the soft limit: /'
violations=$(grep -v '^soft ' <<<"$result" | sed '/^$/d')
if [ -n "$violations" ]; then
  printf '%s\n' "$violations"
  echo "size_budget: $(grep -c . <<<"$violations") violations"
  exit 1
fi
echo "size_budget: ${#files[@]} files, no violation"
