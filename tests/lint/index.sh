#!/usr/bin/env bash
# Every script of tests/e2e stands in the table of tests/README.md, and every script there exists.
#   tests/lint/index.sh [ROOT]    prints path:line: message, exits 1 on any
set -uo pipefail
cd "${1:-$(dirname "$0")/../..}" || exit 2
found=$(
  for script in tests/e2e/*.sh; do
    grep -qF "\`${script##*/}\`" tests/README.md || echo "$script:1: not in the table of tests/README.md"
  done
  sed -n '/^## Scripts of e2e/,$p' tests/README.md | grep -o '`[a-z_0-9]*\.sh`' | tr -d '`' | while read -r name; do
    [ -f "tests/e2e/$name" ] || echo "tests/README.md:1: $name: no such script in tests/e2e"
  done
)
[ -z "$found" ] || { echo "$found"; exit 1; }
