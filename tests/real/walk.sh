#!/usr/bin/env bash
# Walks the cases of real folders, files and machines (cases/*.sh; README.md says how they are written).
#   tests/real/walk.sh [--table] [CASE...]
# --table prints the cases as a table of Markdown: what happened before, what is expected, why, source.
# Environment: FSDP the program, SOURCE the repository.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export SOURCE=${SOURCE:-$(dirname "$(dirname "$here")")}

# head_of FILE KEY: the values of `# KEY: value` in the head of a case, one a line.
head_of() { sed -n "/^#/!q; s/^# $2: //p" "$1"; }
title_of() { sed -n '1s/^# //p' "$1"; }

table=false
if [ "${1:-}" = --table ]; then table=true; shift; fi
cases=()
for name in "$@"; do cases+=("$here/cases/${name%.sh}.sh"); done
[ $# != 0 ] || cases=("$here"/cases/*.sh)

if $table; then
  printf '| case | before | expected | why | source |\n|---|---|---|---|---|\n'
  for file in "${cases[@]}"; do
    printf '| %s' "$(title_of "$file")"
    for key in before expect why source; do
      value=$(head_of "$file" "$key" | awk '{ printf "%s%s", (NR > 1 ? "; " : ""), $0 }')
      printf ' | %s' "${value//|/\\|}"
    done
    printf ' |\n'
  done
  exit
fi

: "${FSDP:?the program}"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0

# walk FILE: runs one case in a folder of its own and compares what it prints.
walk() {
  local file=$1 name folder output status at line text before
  name=$(basename "$file" .sh)
  folder=$scratch/$name
  mkdir -p "$folder"
  output=$(cd "$folder" && HOME=$folder timeout 60 bash -c '. "$0"; . "$1"' "$here/folders.sh" "$file" 2>&1)
  status=$?
  fail() { printf 'FAILED: %s (%s): %s\n' "$name" "$(title_of "$file")" "$*"; failed=1; bad=true; }
  local bad=false
  for key in why source before expect; do
    [ -n "$(head_of "$file" $key)" ] || fail "the case has no line '# $key: '"
  done
  text=$(head_of "$file" status)
  [ "$status" = "${text:-0}" ] || fail "status ${text:-0} expected, got $status"
  # Expectations are found in order; two in one line are told apart by their texts.
  at=0 before=""
  while IFS= read -r text; do
    if [ "$text" = "$before" ]; then at=$((at + 1)); fi
    before=$text
    line=$(TEXT=$text awk -v from="$at" '
      NR >= from && index($0, ENVIRON["TEXT"]) { print NR; exit }' <<<"$output")
    if [ -n "$line" ]; then at=$line; else fail "expected '$text'"; fi
  done < <(head_of "$file" expect)
  while IFS= read -r text; do
    if grep -qF -- "$text" <<<"$output"; then fail "must not print '$text'"; fi
  done < <(head_of "$file" never)
  if $bad; then printf '%s\n' "$output" | head -n 20 | sed 's/^/    /'; fi
}

for file in "${cases[@]}"; do
  [ -f "$file" ] || { echo "FAILED: no case $file"; failed=1; continue; }
  walk "$file"
done
echo "${#cases[@]} cases"
exit $failed
