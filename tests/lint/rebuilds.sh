#!/usr/bin/env bash
# How many sources a new op or a new optimizer rule rebuilds: those that reach the header of its arguments, or the list
# that it joins, by includes. A header that many sources include takes such a header only where it needs it: values that
# others name stand in core/layer_values.h and core/shard_values.h, and a struct may be declared (kernels/cpu/scratch.h).
#   tests/lint/rebuilds.sh [ROOT]      prints the counts; a count above its limit is printed as header:1: message, exits 1
set -uo pipefail
cd "${1:-$(dirname "$0")/../..}" || exit 2
limits='core/layer_args.h 60 65
core/shard_args.h 40 50
core/kernel_args.h 6 32
core/optimizer_rules/list.h 20 50'

mapfile -t sources < <(find core kernels models comm optim tools tests -type f \
  \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) 2>/dev/null)
[ "${#sources[@]}" -gt 0 ] || exit 0
counts=$(awk -v limits="$limits" '
  /^[ \t]*#[ \t]*include[ \t]*"/ {
    header = $0; sub(/^[^"]*"/, "", header); sub(/".*/, "", header)
    users[header] = users[header] " " FILENAME
  }
  function walk(header,    list, count, i) {
    count = split(users[header], list, " ")
    for (i = 1; i <= count; ++i) {
      if (list[i] in seen) continue
      seen[list[i]] = 1
      if (list[i] !~ /[.](cpp|cu)$/) walk(list[i])
      else if (list[i] ~ /^tests\//) ++tests
      else ++product
    }
  }
  END {
    rows = split(limits, row, "\n")
    for (r = 1; r <= rows; ++r) {
      split(row[r], word, " "); delete seen; product = tests = 0
      walk(word[1])
      said = product " sources of the product and " tests " of the tests include it"
      if (product > word[2] || tests > word[3])
        print word[1] ":1: " said ", at most " word[2] " and " word[3]
      else print "rebuilds: " word[1] ": " said
    }
  }' "${sources[@]}")
printf '%s\n' "$counts"
! grep -q ':1: ' <<<"$counts"
