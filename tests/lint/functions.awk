# Prints `path:line<TAB>name<TAB>lines` for every function body in C++ and CUDA sources.
# Not a parser: it follows braces outside comments, strings and parentheses, and classifies what a
# `{` opens by the text since the last `;`, `{` or `}`: a namespace or class (look inside), an
# initialiser (skip it), or a function (measure it from the first line of its head to its last).
# Used by size_budget.sh; checked by self_test.sh. POSIX awk (mawk has no intervals).

function reset_head() { head = ""; head_line = 0 }

function extend_head(text) {
  if (head == "" && text ~ /^[ \t]*$/) return
  if (head == "") head_line = FNR
  head = head text
}

# what the `{` after `head` opens
function kind_of(text,    t, before) {
  if (parens > 0) return "initialiser"
  t = text
  gsub(/::/, "@@", t)
  while (t ~ /^[ \t]*(template|requires)/) {  # drop balanced template <...>
    if (t ~ /^[ \t]*template[ \t]*</) t = after_angles(t); else break
  }
  gsub(/\[\[[^]]*\]\]/, "", t)
  gsub(/(alignas|__attribute__|__launch_bounds__)[ \t]*\(+[^)]*\)+/, "", t)
  sub(/^[ \t]+/, "", t)
  if (t ~ /^(inline[ \t]+)?namespace([ \t]|$)/ || t ~ /^extern[ \t]*"[^"]*"[ \t]*$/) return "namespace"
  if (t ~ /^(typedef[ \t]+)?(class|struct|union|enum)([ \t:]|$)/ && t !~ /\)[ \t]*(const)?[ \t]*$/)
    return "class"
  before = t
  sub(/operator[ \t]*[^ \t(A-Za-z]+/, "operator", before)
  sub(/\(.*/, "", before)
  if (before ~ /=/) return t ~ /\[[^]]*\][ \t]*(\(.*\))?[^=]*$/ ? "function" : "initialiser"
  if (t !~ /\(/) return "initialiser"
  if (t ~ /\).*[^:]:[^:].*[A-Za-z0-9_>][ \t]*$/) return "member"  # x_{...} of a constructor
  return "function"
}

# text after `template <...>`
function after_angles(t,    i, depth, c) {
  depth = 0
  for (i = index(t, "<"); i <= length(t); ++i) {
    c = substr(t, i, 1)
    if (c == "<") ++depth
    if (c == ">" && --depth == 0) break
  }
  return substr(t, i + 1)
}

function name_of(text,    t) {
  t = text
  if (t ~ /^[ \t]*template[ \t]*</) t = after_angles(t)
  gsub(/(alignas|__attribute__|__launch_bounds__)[ \t]*\(+[^)]*\)+/, "", t)
  if (t ~ /operator[ \t]*\([ \t]*\)/) return "operator()"
  if (t ~ /^[^(]*=/ && t !~ /operator/) sub(/[ \t]*=.*/, "", t); else sub(/[ \t]*\(.*/, "", t)
  sub(/.*[ \t*&]/, "", t)
  return t == "" ? "?" : t
}

function open_brace(    kind) {
  ++depth
  if (in_function) return
  kind = kind_of(head)
  kinds[depth] = kind
  saved_parens[depth] = parens
  if (kind == "function") {
    in_function = depth; function_name = name_of(head); function_line = head_line
  } else if (kind == "initialiser" || kind == "member") {
    in_initialiser[depth] = 1
    heads[depth] = head; head_lines[depth] = head_line
  }
  if (kind == "initialiser") parens = 0
  reset_head()
}

function close_brace() {
  if (depth == 0) return
  if (in_function == depth) {
    printf "%s:%d\t%s\t%d\n", FILENAME, function_line, function_name, FNR - function_line + 1
    in_function = 0
    reset_head()
  } else if (!in_function) {
    reset_head()
    if (kinds[depth] == "initialiser" || kinds[depth] == "member") {
      head = heads[depth] "{}"; head_line = head_lines[depth]  # still inside the declaration
    }
    parens = saved_parens[depth]
  }
  --depth
}

FNR == 1 {
  depth = parens = in_function = in_comment = continued = 0
  raw = ""
  reset_head()
}

{
  line = $0
  if (raw == "" && !in_comment && (continued || line ~ /^[ \t]*#/)) {  # preprocessor
    continued = line ~ /\\$/
    next
  }
  while (line != "") {
    if (raw != "") {
      at = index(line, raw)
      if (!at) { line = ""; break }
      line = substr(line, at + length(raw)); raw = ""
    }
    if (in_comment) {
      at = index(line, "*/")
      if (!at) { line = ""; break }
      line = substr(line, at + 2); in_comment = 0
    }
    if (!match(line, /[{}();"']|\/\/|\/\*/)) { extend_head(line); break }
    at = RSTART; token = substr(line, at, RLENGTH)
    text = substr(line, 1, at - 1); line = substr(line, at + RLENGTH)
    extend_head(text)
    if (token == "//") break
    else if (token == "/*") in_comment = 1
    else if (token == "\"") {
      if (text ~ /R$/) {
        raw = line; sub(/\(.*/, "", raw); raw = ")" raw "\""
      } else {
        while (match(line, /["\\]/) && substr(line, RSTART, 1) == "\\") line = substr(line, RSTART + 2)
        line = RSTART ? substr(line, RSTART + 1) : ""
      }
      extend_head("\"\"")
    } else if (token == "\x27") {
      if (text !~ /[0-9A-Fa-f]$/) {  # not the separator of 1 000 000
        while (match(line, /['\\]/) && substr(line, RSTART, 1) == "\\") line = substr(line, RSTART + 2)
        line = RSTART ? substr(line, RSTART + 1) : ""
      }
    } else if (token == "{") open_brace()
    else if (token == "}") close_brace()
    else if (in_function) continue
    else if (token == "(") { ++parens; extend_head("(") }
    else if (token == ")") { --parens; extend_head(")") }
    else if (parens == 0) reset_head()  # ;
  }
  if (head != "") head = head " "
  if (head ~ /(public|private|protected)[ \t]*:[ \t]*$/) reset_head()
}
