#!/usr/bin/env bash
# Checks the checkers: builds a tree with one violation of each rule and expects each to be reported
# at its place, and a clean tree to pass.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
failed=0

file() { mkdir -p "$tree/$(dirname "$1")" && cat >"$tree/$1"; }
lines() { for ((i = 0; i < $1; ++i)); do echo "$2"; done; }

# expect CHECKER 'path:line: message' (the beginning of a reported line)
expect() {
  local reported
  reported=$("$here/$1" "$tree")
  if ! grep -qF -- "$2" <<<"$reported"; then
    echo "FAILED: $1 does not report: $2"
    failed=1
  fi
}

# ---- a clean tree passes, with every construct that the heuristics must understand ---------------
file core/shape.h <<'X'
// A header.
#pragma once
#include <array>
namespace core {
struct Shape {
  explicit Shape(int n) : n_{n}, m_(n) {}
  template <class T, class U = std::array<int, 3>>
  auto operator==(const T& other) const -> bool { return n_ == other.n_; }
  int n_ = 0, m_{1};
};
constexpr std::array<int, 2> kTable{
    1,
    1'000};
enum class Kind { kA, kB };
}  // namespace core
X
file core/shape.cpp <<'X'
/* A source: "{" and '{' and these { braces { are not code */
#include "core/shape.h"
namespace core {
extern const char* const kText;
const char* const kText = R"x( { { " )x";
static int twice(int n = {}) {
  auto f = [&](int m) {  // {
    return m + n;
  };
  return f('{') + f('\'');
}
}  // namespace core
X
file optim/adam.h <<'X'
// May know the communicator.
#pragma once
#include "comm/communicator.h"
#include "core/shape.h"
#include "optim/schedule.h"
X
file comm/mpi_absent.cpp <<'X'
// A stub needs no test.
#include "core/shape.h"
X
file CMakeLists.txt <<'X'
# The rooms.
fsdp_layer(core EXCLUDE core/io/)
fsdp_layer(core/io DEPENDS core)  # a comment (with a bracket)
fsdp_layer(kernels DEPENDS core)
fsdp_layer(models DEPENDS core)
fsdp_layer(comm DEPENDS core EXCLUDE comm/fsdp/)
fsdp_layer(comm/fsdp DEPENDS core comm)
fsdp_layer(optim DEPENDS core comm)
fsdp_layer(tools/launch DEPENDS core comm)
fsdp_layer(tools/train
  DEPENDS core optim
          tools/launch
  EXCLUDE tools/train/main.cpp)
X
file tests/core/shape_test.cpp <<<'// A test.'
for checker in include_rules size_budget option_keys; do
  if ! "$here/$checker.sh" "$tree" >"$tree/../$$.out"; then
    echo "FAILED: $checker.sh reports a clean tree:"; cat "$tree/../$$.out"; failed=1
  fi
done
rm -f "$tree/../$$.out"
measured=$(cd "$tree" && awk -f "$here/functions.awk" core/shape.h core/shape.cpp | tr '\t' ' ')
wanted='core/shape.h:6 Shape 1
core/shape.h:7 operator== 2
core/shape.cpp:6 twice 6'
if [ "$measured" != "$wanted" ]; then
  printf 'FAILED: functions.awk measured\n%s\ninstead of\n%s\n' "$measured" "$wanted"; failed=1
fi

# ---- include_rules: one violation a line ---------------------------------------------------------
rule() {  # rule PATH 'source line' 'message'
  local first="// What it is for."
  { echo "$first"; case "$1" in *.h) echo "#pragma once" ;; *) echo ;; esac; echo "$2"; } | file "$1"
  expect include_rules.sh "$1:3: $3"
}
rule core/a.h '#include "kernels/cpu/b.h"' 'core must not include "kernels/cpu/b.h"'
rule kernels/a.h '#include "comm/b.h"' 'kernels must not include'
rule models/a.h '#include "optim/b.h"' 'models must not include'
rule comm/a.h '#include "models/b.h"' 'comm must not include'
rule optim/a.h '#include "comm/fsdp/unit.h"' 'optim must not include'
rule tools/train/a.h '#include "tests/support/b.h"' 'tools/train must not include'
rule tools/launch/b.h '#include "tools/train/c.h"' 'tools/launch must not include "tools/train/c.h"'
rule core/c.cpp '#include "core/io/d.h"' 'core must not include "core/io/d.h"'
rule comm/e.h '#include "comm/fsdp/f.h"' 'comm must not include'
rule tools/train/d.cpp '#include "tools/predict/e.h"' 'tools/train must not include'
rule core/b.cpp '#include "shape.h"' '"shape.h": includes name the path'
rule kernels/cpu/c.cpp '#include <cuda_runtime.h>' '<cuda_runtime.h> belongs only to'
rule comm/local.cpp '#include <nccl.h>' '<nccl.h> belongs only to'
rule comm/d.cpp '#include <mpi.h>' '<mpi.h> belongs only to comm/mpi*'
rule core/e.cpp '#include <nlohmann/json.hpp>' '<nlohmann/json.hpp> belongs only to core/io/json.cpp'
rule models/f.cpp '#include <yaml-cpp/yaml.h>' '<yaml-cpp/yaml.h> belongs only to tools'
rule core/g.cpp '#include <CLI/CLI.hpp>' '<CLI/CLI.hpp> belongs only to tools/commands/options.cpp'
rule tools/train/g.cpp '#include <xxhash.h>' '<xxhash.h> belongs only to core/io/checksum.cpp'
rule kernels/cpu/matmul.cpp '#include <dnnl.hpp>' '<dnnl.hpp> belongs only to kernels/cpu/matmul_onednn*'
rule tools/train/h.cpp '#include <Eigen/Dense>' '<Eigen/Dense> belongs only to kernels/cpu'
rule kernels/cpu/i.cpp '#include <omp.h>' '<omp.h> belongs only to'
rule core/j.cpp '#include <doctest/doctest.h>' '<doctest/doctest.h> belongs only to tests'
rule core/k.cpp 'using namespace std;' 'no using namespace std'
rule kernels/cpu/l.cpp '#pragma omp parallel for' 'OpenMP only through parallel_for'
rule core/m.cpp '#ifdef FSDP_HAVE_MPI' 'optional libraries are a stub file'
rule core/n.cpp 'void f() { std::exit(1); }' 'libraries never exit or abort'
rule core/o.cpp 'void f() { std::cout << 1; }' 'libraries never print'
rule core/p.cpp 'auto x = std::getenv("HOME");' 'no environment reads below tools'
rule core/q.h '#ifndef CORE_Q_H' '#pragma once instead of an include guard'
file core/r.cpp <<<'int no_comment;'
expect include_rules.sh 'core/r.cpp:1: the first line is a comment'
file core/s.h <<<'// A header without it.'
expect include_rules.sh 'core/s.h:1: a header has #pragma once'
{ echo '// A forest.'; lines 3 '#if X'; } | file core/t.cpp
expect include_rules.sh 'core/t.cpp:4: an #ifdef forest'
file tools/surprise/x.h <<<'// In no room.'
expect include_rules.sh 'tools/surprise/x.h:1: its folder is no room of CMakeLists.txt'
rm "$tree/tools/surprise/x.h"
echo 'fsdp_layer(tools/report DEPENDS tools/train nowhere) fsdp_layer(tools/launch DEPENDS tools/report)' >>"$tree/CMakeLists.txt"
expect include_rules.sh 'CMakeLists.txt:1: a circle of rooms: tools/launch -> tools/report -> tools/train -> tools/launch'
expect include_rules.sh 'CMakeLists.txt:1: tools/report depends on nowhere, which is no room'
expect include_rules.sh 'CMakeLists.txt:1: tools/launch includes nothing of tools/report, on which it depends'
sed -i '$d' "$tree/CMakeLists.txt"
file surprise/x <<<''
expect include_rules.sh 'surprise:1: no other top-level entry'

# ---- size_budget ---------------------------------------------------------------------------------
head -c 12000001 /dev/zero | file tests/fixtures/large.bin
expect size_budget.sh 'tests/fixtures:1: 12000001 bytes, at most 12000000'
{ echo '// Long.'; lines 600 '// line'; } | file core/long.cpp
expect size_budget.sh 'core/long.cpp:601: 601 lines, at most 600'
{ echo '// Long.'; lines 400 '// line'; } | file comm/fsdp/long.h
expect size_budget.sh 'comm/fsdp/long.h:401: 401 lines, at most 400'
{ echo '// Long.'; echo 'Long::Long(int a) : a_{a}, b_(a)'; echo '{'; lines 59 '  if (a) { a; }'; echo '}'; } |
  file optim/body.cpp
expect size_budget.sh 'optim/body.cpp:2: function Long::Long has 62 lines, at most 60'
{ echo '// Long.'; echo '__global__ void kernel() {'; lines 150 '  x;'; echo '}'; } | file kernels/cuda/k.cu
expect size_budget.sh 'kernels/cuda/k.cu:2: function kernel has 152 lines, at most 150'
file models/lonely.cpp <<<'// Without a test.'
expect size_budget.sh 'models/lonely.cpp:1: no test below tests/models is named after it'
file tools/train/elsewhere.cpp <<<'// With a test in another room.'
file tests/tools/launch/elsewhere_test.cpp <<<'// A test.'
expect size_budget.sh 'tools/train/elsewhere.cpp:1: no test below tests/tools/train is named after it'
file tests/lint/covered_by.txt <<<'core/gone.cpp: tests/core/shape_test.cpp
core/b.cpp: tests/core/nowhere_test.cpp'
expect size_budget.sh 'core/gone.cpp is not there any more'
expect size_budget.sh 'core/b.cpp: the test tests/core/nowhere_test.cpp is not there'

# ---- lines in total -------------------------------------------------------------------------------
PRODUCT_LINES=1 TEST_LINES=1 expect size_budget.sh 'product:1: '
PRODUCT_LINES=1 TEST_LINES=1 expect size_budget.sh 'tests:1: '

# ---- the index of scripts ------------------------------------------------------------------------
file tests/README.md <<'X'
## Scripts of e2e
`gone.sh`
X
file tests/e2e/new.sh <<<'#!/bin/sh'
expect index.sh 'tests/e2e/new.sh:1: not in the table of tests/README.md'
expect index.sh 'tests/README.md:1: gone.sh: no such script in tests/e2e'
rm "$tree/tests/e2e/new.sh"
lines 301 word | file tools/launch/README.md
expect index.sh 'tools/launch/README.md:1: 301 words, at most 300'
rm "$tree/tools/launch/README.md"

# ---- keys as text --------------------------------------------------------------------------------
file tools/config/a_fields.cpp <<'X'
// The list.
  v.section("train", "how", c.train);
  v.field(
      "lr", c.lr, "peak");
X
file tools/train/keys.cpp <<'X'
// A comment may name "train.lr", and a message, too.
const char* kText = "train.lr: expected "
                    "train.lr";
const char* kFile = "train.txt";
X
grep -q "^option_keys: 0 keys" <<<"$("$here/option_keys.sh" "$tree")" || { echo "FAILED: option_keys.sh"; failed=1; }
lines 11 'const char* kKey = "train.lr=1";' >>"$tree/tools/train/keys.cpp"
expect option_keys.sh 'tools/train/keys.cpp:5: key as text: train.lr'
expect option_keys.sh 'tools/config:1: 11 keys as text outside of the list, at most 10'
: >"$tree/tools/config/a_fields.cpp"
expect option_keys.sh 'tools/config:1: no options found in the list'

# ---- names of guests ------------------------------------------------------------------------------
file tools/train/own.cpp <<'X'
// As fairseq does.
const char* kName = "ours";  // unlike DeepSpeed
const char* kSchedule = "fairseq_polynomial_decay";
X
"$here/guests.sh" "$tree" >/dev/null || { echo "FAILED: guests.sh"; failed=1; }
echo 'bool has_deepSpeed();' >>"$tree/tools/train/own.cpp"
expect guests.sh 'tools/train/own.cpp:4: a name of a guest, "deepSpeed"'
rm "$tree/tools/train/own.cpp"

# ---- phrases --------------------------------------------------------------------------------------
whole=$tree
tree=$whole/words
mkdir "$tree"
"$here/words.sh" "$tree" >/dev/null || { echo "FAILED: words.sh needs no list"; failed=1; }
file tests/lint/words.txt <<'X'
# A comment.
2 | goes on | "continues"
0 | those | the noun
1 | in all([.,]|$) | "in total"
0 | ^what | begin with the noun
X
file core/words.cpp <<'X'
// A comment that goes
// on. What else? Not counted: ongoes on, whatever.
const char* kText = "it goes "
                    "on, in all";
int goes_on;  // in all ranks
X
file README.md <<'X'
A text in all, `in all.`
```
those
```
X
expect words.sh 'tests/lint/words.txt:4: "in all([.,]|$)" occurs 2 times, at most 1: write "in total"'
for line in 'core/words.cpp:3: it goes on, in all' 'README.md:1:  A text in all, x'; do
  grep -qiF -- "$line" <<<"$("$here/words.sh" --list 'in all([.,]|$)' "$tree")" || { echo "FAILED: words.sh --list: $line"; failed=1; }
done
sed -i 's/ in all,/,/' "$tree/README.md"
"$here/words.sh" "$tree" >/dev/null || { echo "FAILED: words.sh"; failed=1; }
printf '\n| What is here. | Those |\n' >>"$tree/README.md"
file tools/texts.json <<<'{"help": "of those", "key": "is those"}'
expect words.sh 'tests/lint/words.txt:3: "those" occurs 3 times, at most 0: write the noun'
expect words.sh 'tests/lint/words.txt:5: "^what" occurs 1 times, at most 0'
printf '# Nothing.\n' >"$tree/README.md"
rm "$tree/tools/texts.json"
sed -i 's/goes$/ends/' "$tree/core/words.cpp"
expect words.sh 'words: tests/lint/words.sh --lower can lower: "goes on" 2 -> 1'
"$here/words.sh" --lower "$tree"
grep -qF '1 | goes on | "continues"' "$tree/tests/lint/words.txt" || { echo "FAILED: words.sh --lower"; failed=1; }
rm -rf "$tree"
tree=$whole

# ---- requirements --------------------------------------------------------------------------------
file tests/requirements.txt <<'X'
# A list.
S0.1 One thing
S0.2 Another | LATER: half of it
S0.3 A third | [GPU] how fast
S1.10 A fourth | LATER: all of it
X
{ echo '// A test.'; echo '// Requirements: S0.1, S0.2.'; echo '#include "x.h"'; } | file tests/core/a_test.cpp
{ echo '#!/bin/sh'; echo '# A script.'; echo '# Requirements: S0.3, S0.1.'; echo 'exit'; } | file tests/e2e/b.sh
for line in 'S0.1   DONE     One thing' 'tests/e2e/b.sh' 'S0.2   PART     Another' 'missing: half of it' \
  'S0.3   DONE     A third' '[GPU]: how fast' 'S1.10  LATER    A fourth' \
  '4 requirements: 2 DONE (of these 1 but for a [GPU], 0 but for [NODES]), 1 PART, 1 LATER, 0 [GPU], 0 [NODES]'; do
  expect ../requirements.sh "$line"
done
# Within a line of the head comment, and over two of them.
{ echo '// A test. Requirements: S0.1. It is short.'; echo 'int x;'; } | file tests/core/a_test.cpp
{ echo '# A script. Requirements: S0.3,'; echo '# S0.2.'; } | file tests/e2e/b.sh
for line in 'S0.1   DONE     One thing' 'S0.2   PART     Another' 'S0.3   DONE     A third'; do
  expect ../requirements.sh "$line"
done
requirement() {  # 'line of the list' 'line of a test' 'message': in a tree that has nothing else wrong
  printf '%s\n' 'S0.1 One thing' "$1" | file tests/requirements.txt
  { echo '// A test.'; echo "$2"; } | file tests/core/a_test.cpp
  echo '# Requirements: S0.1.' | file tests/e2e/b.sh
  expect ../requirements.sh "$3"
  "$here/../requirements.sh" "$tree" >/dev/null && { echo "FAILED: requirements.sh passes: $3"; failed=1; }
}
requirement 'S0.2 Another' '//' 'tests/requirements.txt:2: S0.2: no test names it, and no reason says why'
requirement 'S0.1 Again' '//' 'tests/requirements.txt:2: S0.1 is listed twice'
requirement 'S0.2 Another | SOON: it' '//' 'tests/requirements.txt:2: S0.2: expected LATER: ..., [GPU]'
requirement '1.2 Another' '//' 'tests/requirements.txt:2: expected a requirement such as S0.1, got "1.2"'
requirement "S0.2 $(printf 'a%.0s' {1..91})" '//' 'tests/requirements.txt:2: S0.2: expected a statement of 1 to 90 characters, got 91'
requirement '' '// Requirements: S0.1, S9.9.' 'tests/core/a_test.cpp:2: unknown requirement "S9.9"'
requirement '' '// Requirements: S0.1, S0.1.' 'tests/core/a_test.cpp:2: S0.1 is named twice'
requirement '' $'// Of it. Requirements: S0.1,\n// S0.1.' 'tests/core/a_test.cpp:2: S0.1 is named twice'
requirement '' '// Requirements: S0.1' 'tests/core/a_test.cpp:2: expected a list of requirements that ends with a point'
requirement '' $'int x;\n// Requirements: S0.1.' 'tests/core/a_test.cpp:3: a list of requirements belongs to the head comment'

# ---- one_definition: in two files of a namespace; not in anonymous ones, and not declared alone -----
file optim/twice.h <<'X'
// A header.
#pragma once
namespace fsdp {
struct Twice {
  int a = 0;
};
class Once;
}  // namespace fsdp
X
file optim/once.cpp <<'X'
// A source.
namespace fsdp {
namespace {
struct Twice {};
}  // namespace
class Once {};
struct Once::Part {};
}  // namespace fsdp
X
file comm/twice.cpp <<'X'
// A source.
namespace fsdp {
class Twice {};
}  // namespace fsdp
X
expect one_definition.sh 'optim/twice.h:4: fsdp::Twice has another definition in comm/twice.cpp: rename one'
[ "$("$here/one_definition.sh" "$tree" | wc -l)" = 1 ] || { echo "FAILED: one_definition.sh reports more"; failed=1; }

# ---- rebuilds: through a header, and beside those that include only that ----------------------------
echo '#include "core/optimizer_rules/list.h"' | file kernels/rules.h
for ((i = 0; i < 21; ++i)); do echo '#include "kernels/rules.h"' | file "kernels/rule$i.cpp"; done
expect rebuilds.sh 'core/optimizer_rules/list.h:1: 21 sources of the product and 0 of the tests include it, at most 20 and'
expect rebuilds.sh 'rebuilds: core/kernel_args.h: 0 sources'
if [ "$failed" = 0 ]; then echo "self_test: every rule reports its violation"; fi
exit "$failed"
