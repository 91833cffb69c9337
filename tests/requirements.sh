#!/usr/bin/env bash
# The table of requirements (tests/requirements.txt) with the tests that prove them, which name them
# in their head comment. What `make requirements` prints; also a test, so that the two stay in order.
#   tests/requirements.sh [ROOT]    prints the table, or path:line: message and exits 1 on any
# DONE: tests prove it; [GPU] or [NODES] beside: but for what only such machines show. PART: they prove
# it but for what is missing. LATER: nothing of it is proven.
set -uo pipefail
cd "${1:-$(dirname "$0")/..}" || exit 2
mapfile -t tests < <(find tests -type f \( -name '*_test.cpp' -o -name '*.sh' \) | sort)

awk '
  function problem_at(place, message) { print place ": " message; wrong = 1 }
  function problem(message) { problem_at(FILENAME ":" FNR, message) }
  # What stands behind "Requirements: ", up to its point, which may be on a later line.
  function tag(list,    words, count, i) {
    if (!match(list, /\.( |$)/)) problem_at(place, "expected a list of requirements that ends with a point")
    else list = substr(list, 1, RSTART - 1)
    count = split(list, words, / *, */)
    for (i = 1; i <= count; ++i) {
      if (!(words[i] in statement)) problem_at(place, "unknown requirement \"" words[i] "\"")
      else if ((file, words[i]) in tagged) problem_at(place, words[i] " is named twice")
      else proof[words[i]] = proof[words[i]] "\n                " file
      tagged[file, words[i]] = 1
    }
    pending = ""
  }
  FNR == 1 {
    if (pending != "") tag(pending)
    head = 1
    file = FILENAME
  }

  # The list.
  FILENAME == "tests/requirements.txt" {
    if (/^#/ || /^$/) next
    id = $1
    bar = index($0, " | ")
    text = bar ? substr($0, 1, bar - 1) : $0
    mark = bar ? substr($0, bar + 3) : ""
    sub(/^[^ ]* */, "", text)
    if (id !~ /^S[0-9]+\.[0-9]+$/) problem("expected a requirement such as S0.1, got \"" id "\"")
    if (id in statement) { problem(id " is listed twice"); next }
    if (text == "" || length(text) > 90) problem(id ": expected a statement of 1 to 90 characters, got " length(text))
    if (mark != "" && mark !~ /^(LATER:|\[GPU\]|\[NODES\]) [^ ]/) problem(id ": expected LATER: ..., [GPU] ... or [NODES] ... behind |, got \"" mark "\"")
    ids[++listed] = id; statement[id] = text; missing[id] = mark; line[id] = FNR
    next
  }

  # The tests: their first lines are comments.
  !/^\/\// && (FILENAME ~ /\.cpp$/ || !/^#/) {
    head = 0
    if (pending != "") tag(pending)
  }
  /^(\/\/|#).*Requirements: S[0-9]/ {
    if (!head) { problem("a list of requirements belongs to the head comment"); next }
    if (pending != "") tag(pending)
    place = FILENAME ":" FNR
    pending = substr($0, index($0, "Requirements: ") + 14)
    if (pending ~ /\.( |$)/) tag(pending)
    next
  }
  pending != "" {
    sub(/^(\/\/|#) */, "")
    pending = pending " " $0
    if (pending ~ /\.( |$)/) tag(pending)
  }

  END {
    if (pending != "") tag(pending)
    FILENAME = "tests/requirements.txt"
    for (i = 1; i <= listed; ++i) {
      id = ids[i]
      FNR = line[id]
      if (proof[id] == "" && missing[id] == "") problem(id ": no test names it, and no reason says why")
    }
    if (wrong) exit 1
    for (i = 1; i <= listed; ++i) {
      id = ids[i]
      kind = missing[id]; reason = missing[id]
      sub(/[: ].*/, "", kind); sub(/^[^ ]* /, "", reason)
      if (kind == "") state = "DONE"
      else if (kind == "LATER") state = proof[id] == "" ? "LATER" : "PART"
      else { state = proof[id] == "" ? kind : "DONE"; if (state == "DONE") ++beside[kind] }
      ++count[state]
      printf "%-6s %-8s %s\n", id, state, statement[id]
      if (kind != "") printf "                %s: %s\n", kind == "LATER" ? "missing" : kind, reason
      if (proof[id] != "") print substr(proof[id], 2)
    }
    printf "\n%d requirements: %d DONE (of these %d but for a [GPU], %d but for [NODES]), %d PART, %d LATER, %d [GPU], %d [NODES]\n", listed,
      count["DONE"], beside["[GPU]"], beside["[NODES]"], count["PART"], count["LATER"], count["[GPU]"], count["[NODES]"]
  }' tests/requirements.txt "${tests[@]}"
