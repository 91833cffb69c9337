#!/usr/bin/env bash
# An option is declared once, in the list (tools/config/*_fields.cpp, tools/launch/launch_fields.h):
# elsewhere config, train, checkpoint and predict ask the list, or name a member (config::key_of), and
# have few keys as text. Counted is every literal with a key of the list, such as "train.lr" or
# "train.lr=1", but for messages: a text with blanks quotes keys to who has written them.
#   tests/lint/option_keys.sh [ROOT]      prints path:line: message, exits 1 beyond the budget
set -uo pipefail
cd "${1:-$(dirname "$0")/../..}" || exit 2
most=10

shopt -s nullglob
list=(tools/config/*_fields.cpp tools/launch/*_fields.h)
sources=()
for file in tools/{config,train,checkpoint,predict}/*.{h,cpp}; do
  [[ $file == *_fields.cpp ]] || sources+=("$file")
done
[ "${#list[@]}" -gt 0 ] && [ "${#sources[@]}" -gt 0 ] || exit 0

found=$(awk '
  # One text a file: a literal may go on in the next line.
  function scan_list(text,    name) {
    while (match(text, /v\.(field|list|section)\([ \n]*"[a-z0-9_]+"/)) {
      name = substr(text, RSTART, RLENGTH)
      text = substr(text, RSTART + RLENGTH)
      is_section = name ~ /^v\.section/
      gsub(/^[^"]*"|"$/, "", name)
      if (is_section) sections[name] = 1; else { keys[name] = 1; ++known }
    }
  }
  function has_key(literal,    word, parts, count) {
    while (match(literal, /[a-z0-9_]+(\.[a-z0-9_]+)+/)) {
      word = substr(literal, RSTART, RLENGTH)
      literal = substr(literal, RSTART + RLENGTH)
      count = split(word, parts, ".")
      if ((parts[1] in sections) && (parts[count] in keys)) return word
    }
    return ""
  }
  function scan_source(text,    line, literal, at, begin, key) {
    gsub(/"[ \n]*\n[ \n]*"/, "\001", text)  # one literal in several lines
    line = 1
    while (match(text, /"([^"\\\n]|\\.)*"/)) {
      begin = substr(text, 1, RSTART - 1)
      literal = substr(text, RSTART, RLENGTH)
      text = substr(text, RSTART + RLENGTH)
      line += gsub(/\n/, "", begin) + gsub(/\001/, "", begin)
      at = line
      line += gsub(/\001/, "", literal)
      key = has_key(literal)
      if (key != "" && literal !~ / / && literal !~ /^"tools\//) print path ":" at ": key as text: " key
    }
  }
  function finish() {
    if (path == "") return
    if (is_list) scan_list(text); else scan_source(text)
  }
  FNR == 1 { finish(); path = FILENAME; text = ""; is_list = path ~ /_fields\.(cpp|h)$/ && path !~ /config_fields\.h$/ }
  { sub(/(^|[ \t])\/\/.*$/, ""); text = text $0 "\n" }
  END { finish(); if (!known) print "tools/config:1: no options found in the list" }
' "${list[@]}" "${sources[@]}")

count=$(grep -c . <<<"$found")
if [ "$count" -gt "$most" ] || grep -q 'no options found' <<<"$found"; then
  echo "$found"
  echo "tools/config:1: $count keys as text outside of the list, at most $most"
  exit 1
fi
echo "option_keys: $count keys as text outside of the list, at most $most"
