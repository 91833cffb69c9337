#!/usr/bin/env bash
# Two classes of one name in one namespace are undefined behaviour, which no compiler sees: the linker keeps one of their
# destructors for both. So a name of a class, struct or enum outside of anonymous namespaces stands in one file.
#   tests/lint/one_definition.sh [ROOT]      prints path:line: message, exits 1 on any
set -uo pipefail
cd "${1:-$(dirname "$0")/../..}" || exit 2
mapfile -t sources < <(find core kernels models comm optim tools tests -type f \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' \) \
  -not -name '*_absent.cpp' -not -path 'tests/cuda_emulator/include/*' 2>/dev/null | sort)
[ "${#sources[@]}" -gt 0 ] || exit 0
awk '
  FNR == 1 { space = ""; anonymous = 0 }
  /^namespace [a-z_:]+ [{]/ { space = $2; next }
  /^namespace [{]/ { anonymous = 1; next }
  /^[}]  \/\/ namespace$/ { anonymous = 0; next }
  /^[}]  \/\/ namespace [a-z_:]+$/ { space = ""; next }
  anonymous || space == "" { next }
  match($0, /^(struct|class|enum class|enum) [A-Z][A-Za-z0-9]*/) {
    rest = substr($0, RSTART + RLENGTH)
    if (rest ~ /^(;|::|<| : [a-z0-9_]+;)/) next  # declared, of another class, specialised
    n = split(substr($0, RSTART, RLENGTH), word, " ")
    name = space "::" word[n]
    if (name in at && at[name] != FILENAME) {
      print FILENAME ":" FNR ": " name " has another definition in " at[name] ": rename one"
      found = 1
    }
    at[name] = FILENAME
  }
  END { exit found }' "${sources[@]}"
