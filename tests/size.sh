#!/usr/bin/env bash
# Prints the size of the code; `make size` calls it.
#   tests/size.sh [BUILD]    lines by room, edges between rooms, large files and functions, repeated lines;
#                            with a build folder also its objects and the seconds of their last compilation
# Lines are all lines of .h, .cpp, .cu and .cuh files. The product is core, kernels, models, comm, optim and tools without
# tools/examples and tools/recipes. Ends with the output and the exit status of tests/lint/size_budget.sh.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2
build=${1:-build}
sources() { find "$@" -type f \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) | sort; }
rooms=$(sed -n 's/^fsdp_layer(\([^ )]*\).*/\1/p' CMakeLists.txt)

echo "room                     product  headers    tests    files"
{
  sources core kernels models comm optim tools | sed 's/^/product /'
  sources tests | sed 's/^/tests /'
} | while read -r kind file; do echo "$kind $file $(wc -l <"$file")"; done |
  awk -v rooms="$rooms" '
    BEGIN { count = split(rooms, room, "\n"); for (i = 1; i <= count; ++i) is_room[room[i]] = 1 }
    {
      path = $2
      if ($1 == "tests") sub(/^tests\//, "", path)
      while (sub(/\/[^\/]*$/, "", path)) if (path in is_room) break
      if (!(path in is_room)) path = $1 == "tests" ? "tests/(other)" : path
      names[path] = 1
      lines[path, $1] += $3
      if ($1 == "product") { ++files[path]; if ($2 ~ /\.h$/) headers[path] += $3 }
      if ($1 == "tests" || path !~ /^tools\/examples/) total[$1] += $3
    }
    END {
      for (name in names) printf "%-22s %9d %8d %8d %8d\n", name, lines[name, "product"], headers[name], lines[name, "tests"], files[name] | "sort -k2,2nr"
      close("sort -k2,2nr")
      printf "%-22s %9d          %8d\n", "total", total["product"], total["tests"]
    }'

echo
echo "tests with scripts: $(find tests -type f \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.sh' -o -name '*.py' \) -print0 | xargs -0 cat | wc -l) lines"
echo "edges between rooms: $(grep -rnoE '^#include "[^"]+"' --include='*.h' --include='*.cpp' --include='*.cu' core kernels models comm optim tools |
  awk -v rooms="$rooms" '
    BEGIN { count = split(rooms, list, "\n"); for (i = 1; i <= count; ++i) is_room[list[i]] = 1 }
    function room(path) { while (sub(/\/[^\/]*$/, "", path)) if (path in is_room) return path; return "" }
    { split($0, part, ":"); split($0, quoted, "\""); from = room(part[1]); to = room(quoted[2]); if (from != "" && to != "" && from != to) edge[from " " to] = 1 }
    END { for (e in edge) ++n; print n }')"
mapfile -t all < <(sources core kernels models comm optim tools tests)
echo "functions over 60 lines: $(awk -f tests/lint/functions.awk "${all[@]}" | awk -F '\t' '$3 > 60' | wc -l), of them in CUDA files: $(
  awk -f tests/lint/functions.awk "${all[@]}" | awk -F '\t' '$3 > 60 && $1 ~ /\.cuh?:/' | wc -l)"
echo "files over 600 lines: $(wc -l "${all[@]}" | awk '$1 > 600 && $2 != "total"' | wc -l)"
# Runs of six lines of code that occur in two places; empty lines, single brackets and includes do not count.
echo "runs of six equal lines: $(awk '
  FNR == 1 { n = 0 }
  { line = $0; gsub(/^[ \t]+|[ \t]+$/, "", line) }
  line == "" || line ~ /^[{}();, ]*$/ || line ~ /^(#include|\/\/|namespace|using )/ { next }
  {
    last[n++ % 6] = line
    if (n < 6) next
    run = ""
    for (i = 0; i < 6; ++i) run = run "\n" last[(n + i) % 6]
    if (run in seen) ++twice
    seen[run] = 1
  }
  END { print twice + 0 }' "${all[@]}")"

if [ -f "$build/.ninja_log" ]; then
  echo "objects in $build, and the seconds of their last compilations (a cache makes them short):"
  awk -F '\t' '/\.o\t/ { seconds[$4] = ($2 - $1) / 1000 }
    END { for (o in seconds) { kind = o ~ /test|emulat/ ? "tests" : "program"; ++n[kind]; s[kind] += seconds[o] }
      for (kind in n) printf "  %-8s %5d objects %7.0f s\n", kind, n[kind], s[kind] }' "$build/.ninja_log" | sort
fi
echo
tests/lint/size_budget.sh --report
