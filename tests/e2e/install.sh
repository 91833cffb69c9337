#!/usr/bin/env bash
# A program of one's own on the engine: tools/examples/train.cpp trains a sharded model, on ranks as
# threads and as processes with the same losses; accumulation.cpp and gradient_norm.cpp show a mistake
# beside what is right; installed, the engine is found by a project outside of this build, whose
# program does the same.
# Environment: FSDP the program, beside what was built with it; SOURCE the repository; MPIRUN.
source "$(dirname "$0")/../support/e2e.sh"
build=$(dirname "$FSDP")

# losses FILE: of its steps
losses() { grep -o 'loss [0-9.]*' "$1"; }

for ranks in 1 3; do
  "$build/example_train" $ranks >own.$ranks || { fail "example_train $ranks ended with $?"; cat own.$ranks; }
  [ "$(grep -c '^step' own.$ranks)" = 30 ] || fail "$ranks ranks: expected 30 steps"
  awk '/^step/ { if (!first) first = $4; last = $4 } END { exit !(last < 0.6 * first) }' own.$ranks ||
    fail "$ranks ranks: the loss does not fall: $(sed -n '1p;$p' own.$ranks)"
done
"$build/example_train" 0 2>error && fail "0 ranks: expected an error"
grep -q '^train: ' error || fail "0 ranks: expected a line, got $(cat error)"
if [ -n "${MPIRUN:-}" ]; then
  # shellcheck disable=SC2086
  $MPIRUN -n 3 "$build/example_train" mpi >mpi.3 || fail "mpirun example_train ended with $?"
  cmp -s <(losses own.3) <(losses mpi.3) || fail "mpirun: other losses than ranks as threads"
fi

# ---- a mistake beside what is right ----------------------------------------------------------------
# distinct FILE COLUMN: how many numbers there are in a column of a table by 1, 2 and 4 micro-steps or ranks
distinct() { awk -v column="$2" '/^[124] / { print $column }' "$1" | sort -u | wc -l; }
"$build/example_accumulation" >accumulation || fail "example_accumulation ended with $?"
[ "$(distinct accumulation 3) $(distinct accumulation 5) $(distinct accumulation 7)" = "1 3 3" ] ||
  fail "norms of one step in 1, 2 and 4 micro-steps: $(cat accumulation)"
"$build/example_gradient_norm" >gradient_norm || fail "example_gradient_norm ended with $?"
[ "$(distinct gradient_norm 2) $(distinct gradient_norm 3) $(distinct gradient_norm 4)" = "1 1 3" ] ||
  fail "losses on 1, 2 and 4 ranks: $(cat gradient_norm)"

# ---- installed -----------------------------------------------------------------------------------
cmake --install "$build" --prefix "$scratch/prefix" >install.log || { fail "install"; tail install.log; }
cmake -S "$SOURCE/tools/examples" -B outside -DCMAKE_PREFIX_PATH="$scratch/prefix" >outside.log 2>&1 &&
  cmake --build outside --verbose >>outside.log 2>&1 || { fail "the project outside"; tail -30 outside.log; }
outside/train 3 >outside.3 || fail "the program outside ended with $?"
cmp -s own.3 outside.3 || fail "the program outside: other losses than the one of this build"
grep -qF "$scratch/prefix/include" outside.log || fail "the program outside: no path of its headers"
grep -qE -- "-(I|isystem) ?$SOURCE" outside.log &&
  fail "the program outside was compiled with headers of the repository"

[ "$failed" = 0 ] && echo "a program of one's own on the engine: all is well"
exit "$failed"
