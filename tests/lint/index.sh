#!/usr/bin/env bash
# Every script of tests/e2e stands in the table of tests/README.md, and every script there exists. A manual of several
# pages begins with a README of at most 300 words.
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
  for page in tools/train/README.md tools/launch/README.md; do
    words=$(cat "$page" 2>/dev/null | wc -w)
    [ "$words" -le 300 ] || echo "$page:1: $words words, at most 300: put the rest into another page of the folder"
  done
)
[ -z "$found" ] || { echo "$found"; exit 1; }
