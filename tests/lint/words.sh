#!/usr/bin/env bash
# Counts the phrases of words.txt in the comments and string literals of the sources, in the texts of *.json (but those of
# tests and recipes), in the comments of scripts and in the text of *.md. A phrase that occurs more often than words.txt
# allows is an error; a phrase that has become rarer is reported. Not read: tests/lint, code within *.md.
#   tests/lint/words.sh [ROOT]                  prints path:line: message, exits 1 on any
#   tests/lint/words.sh --list PHRASE [ROOT]    the places of a phrase, which is written as in words.txt
#   tests/lint/words.sh --lower [ROOT]          writes the counts that have fallen into words.txt
set -uo pipefail
mode=check wanted=""
case "${1:-}" in
  --list) mode=list; wanted=${2:?--list: expected a phrase of words.txt}; shift 2 ;;
  --lower) mode=lower; shift ;;
esac
cd "${1:-$(dirname "$0")/../..}" || exit 2
list=tests/lint/words.txt
[ -f "$list" ] || exit 0

# One line of awk for each phrase, because awk compiles an expression that is written out only once. Blanks are
# doubled in the text, so that the two ends of neighbouring phrases are different characters.
patterns=$(awk -F ' [|] ' -v wanted="$wanted" '
  !/^[0-9]+ [|] / { next }
  wanted == "" || wanted == $2 {
    phrase = $2; text = "text"; before = "[^a-z]"
    if (sub(/^\^/, "", phrase)) {
      phrase = toupper(substr(phrase, 1, 1)) substr(phrase, 2); text = "sentences"; before = "\001 *"
    }
    gsub(/ /, "  ", phrase)
    if (!sub(/[|]\$\)$/, "|  $)", phrase)) phrase = phrase "[^a-z]"
    counter = $2 == "^what" ? "statements(sentences)" : "gsub(/" before phrase "/, \"&\", " text ")"
    print "hits = " counter "; if (hits) found(" FNR ", hits, words)"
  }' "$list")
[ -n "$patterns" ] || { echo "$list:1: no phrase '$wanted'"; exit 2; }

mapfile -t files < <(find core kernels models comm optim tools tests ./*.md Makefile CMakeLists.txt -type f \
  \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' -o -name '*.js' -o -name '*.json' -o -name '*.sh' \
     -o -name '*.py' -o -name '*.cmake' -o -name '*.md' -o -name Makefile -o -name CMakeLists.txt \) 2>/dev/null |
  sed 's,^\./,,' | grep -vE '^(tests|tools/recipes)/.*[.]json$|^tests/fixtures/.*[.](py|sh)$|^tests/lint/|/uplot/' | sort)
[ "${#files[@]}" -gt 0 ] || exit 0
counted=$(awk -v mode="$mode" '
  function found(id, hits, text) {
    counts[id] += hits
    if (mode == "list") print place ": " substr(text, 1, 200)
  }
  # Sentences that begin with What and do not end with a question mark.
  function statements(sentences,    hits) {
    while (match(sentences, /\001 *What[^a-z]/)) {
      sentences = substr(sentences, RSTART + 1)
      match(sentences, /[\001?]|$/)
      if (substr(sentences, RSTART, 1) != "?") ++hits
    }
    return hits + 0
  }
  function check(words, is_prose,    text, sentences, hits) {
    if (words == "") return
    text = " " words "  "
    gsub(/ +/, "  ", text)
    sentences = ""
    if (is_prose) {
      sentences = "\001" text
      gsub(/[.!?] /, "&\001", sentences)
    }
    text = tolower(text)
    '"$patterns"'
  }
  function end_prose(    words) { words = prose; prose = ""; place = prose_place; check(words, 1) }
  function end_literal(    words) { words = literal; literal = ""; place = literal_place; check(words, 0) }
  function add_prose(words) {
    if (prose == "") prose_place = FILENAME ":" FNR
    prose = prose " " words
  }
  function add_literal(words) {
    if (literal == "") literal_place = FILENAME ":" FNR
    literal = literal words
  }
  function read_markdown() {
    if ($0 ~ /^[ \t]*```/) { fenced = !fenced; end_prose(); return }
    if (fenced) return
    if ($0 ~ /^[ \t]*([-|#*>]|[0-9]+[.]|$)/) end_prose()
    gsub(/`[^`]*`/, "x"); gsub(/\]\([^)]*\)/, "")
    sub(/^[ \t]*([-|#*>]+|[0-9]+[.])/, "")
    gsub(/ [|] /, ". ")
    add_prose($0)
  }
  function read_script() {
    if (match($0, /^[ \t]*#+ /)) { add_prose(substr($0, RLENGTH + 1)); return }
    end_prose()
    if (match($0, /[ \t]# /)) { add_prose(substr($0, RSTART + 3)); end_prose() }
  }
  function read_code(    line) {
    if (match($0, /^[ \t]*\/\/+ ?/)) { end_literal(); add_prose(substr($0, RLENGTH + 1)); return }
    if (prose != "") end_prose()
    if ($0 ~ /^[ \t]*#[ \t]*include/) return
    line = $0
    if (line !~ /^[ \t]*"/) end_literal()  # a literal continues in the next line
    gsub(/\047\\?"\047/, "", line)
    while (match(line, /"([^"\\]|\\.)*"/)) {
      add_literal(substr(line, RSTART + 1, RLENGTH - 2))
      line = substr(line, RSTART + RLENGTH)
      if (index(line, "\"")) end_literal()
    }
    if (match(line, /\/\/ /)) add_prose(substr(line, RSTART + RLENGTH))
  }
  FNR == 1 {
    end_prose(); end_literal(); fenced = 0
    kind = FILENAME ~ /[.]md$/ ? "text" : FILENAME ~ /[.](sh|py|cmake|txt)$|Makefile$/ ? "script" : "code"
  }
  kind == "text" { read_markdown(); next }
  kind == "script" { read_script(); next }
  { read_code() }
  END {
    end_prose(); end_literal()
    if (mode != "list") for (id in counts) print id, counts[id]
  }' "${files[@]}")
if [ "$mode" = list ]; then printf '%s\n' "$counted"; exit 0; fi

compared=$(printf '%s\n' "$counted" | awk -v mode="$mode" -v list="$list" '
  NR == FNR { counts[$1] = $2; next }
  !/^[0-9]+ [|] / { if (mode == "lower") print; next }
  {
    split($0, part, / [|] /)
    now = counts[FNR] + 0
    if (mode == "lower") { if (now < $1) sub(/^[0-9]+/, now); print }
    else if (now > $1) print list ":" FNR ": \"" part[2] "\" occurs " now " times, at most " $1 ": write " part[3] \
        "; tests/lint/words.sh --list \047" part[2] "\047 lists the places"
    else if (now < $1) fallen = fallen ", \"" part[2] "\" " $1 " -> " now
  }
  END { if (fallen != "") print "lower" substr(fallen, 2) }' - "$list")
if [ "$mode" = lower ]; then printf '%s\n' "$compared" >"$list"; exit 0; fi
lower=$(sed -n 's/^lower //p' <<<"$compared")
[ -z "$lower" ] || echo "words: tests/lint/words.sh --lower can lower: $lower"
violations=$(sed '/^lower /d; /^$/d' <<<"$compared")
if [ -n "$violations" ]; then
  printf '%s\n' "$violations"
  exit 1
fi
echo "words: ${#files[@]} files, no phrase more often than $list says"
