#!/usr/bin/env bash
# Sources that are compiled as one (tools/cmake/Join.cmake) share an anonymous namespace. A function of one source must
# not be a candidate in a call of another source: the compiler might prefer it without a word. So the name of a function
# in the anonymous namespace of one source is not called in another source of its group.
# Environment: FSDP the program; its folder has the groups of the build. SOURCE the repository.
set -uo pipefail
cd "$SOURCE" || exit 2
groups=$(dirname "$FSDP")/joined
[ -d "$groups" ] || { echo "[SKIP] joined_sources: every source was compiled alone"; exit 77; }
found=$(find "$groups" -name '*.cpp' | sort | while read -r group; do
  # shellcheck disable=SC2046
  awk -v group="${group#"$groups"/}" '
    FNR == 1 { ++files; name[files] = FILENAME; anonymous = 0 }
    /^namespace [{]/ { anonymous = 1; next }
    /^[}]  \/\/ namespace$/ { anonymous = 0; next }
    {
      line = $0
      gsub(/"([^"\\]|\\.)*"/, "\"\"", line)
      sub(/\/\/.*/, "", line)
      # A definition begins in the first column, behind a type.
      if (anonymous && line ~ /^[A-Za-z].*[ &*>][A-Za-z_0-9]+\(/ && line !~ /^(using|static_assert|TEST_CASE|struct|class|return) ?/) {
        head = line
        sub(/\(.*/, "", head)
        sub(/.*[ &*>]/, "", head)
        if (head != "" && head !~ /^[A-Z_]+$/ && head != "operator" && head != "alignas") own[files, head] = 1
      }
      while (match(line, /[A-Za-z_][A-Za-z_0-9]*\(/)) {
        before = RSTART > 1 ? substr(line, RSTART - 1, 1) : ""
        call = substr(line, RSTART, RLENGTH - 1)
        if (before !~ /[.>:]/) called[files, call] = 1
        line = substr(line, RSTART + RLENGTH)
      }
    }
    END {
      for (key in own) {
        split(key, part, SUBSEP)
        for (other = 1; other <= files; ++other) {
          if (other == part[1] || !((other, part[2]) in called)) continue
          print group ": " part[2] "() of " name[part[1]] " is a candidate in " name[other]
        }
      }
    }' $(sed -n 's/^#include "\(.*\)"$/\1/p' "$group")
done | sort)
[ -z "$found" ] && exit 0
echo "FAILED: rename one, or list one of the sources in tools/cmake/apart.txt:"
echo "$found"
exit 1
