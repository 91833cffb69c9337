# What most scripts of tests/e2e begin with, to be sourced: `fail WHAT` notes a failure in $failed,
# and the script goes on in an empty folder, $scratch, which goes when it ends.
# summary RUN KEY and lines RUN read what a run has written; same and mistake compare.
set -uo pipefail
failed=0
fail() { echo "FAILED: $*"; failed=1; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1
# same WHAT EXPECTED GOT
same() { [ "$2" = "$3" ] || fail "$1: expected '$2', got '$3'"; }
# mistake 'part of the message' ARGUMENTS...: the program says it in one line, notes apart, and fails.
mistake() {
  local part=$1 output status=0
  shift
  output=$("$FSDP" "$@" 2>&1 </dev/null) || status=$?
  { [ "$status" != 0 ] && [ "$(grep '^fsdp: ' <<<"$output" | grep -cv '^fsdp: note: ')" = 1 ] &&
    grep -qF -- "$part" <<<"$output"; } || fail "$*: expected '$part', got status $status: $output"
}
# A key of metrics.json itself: what lies deeper, such as a straggler, may have keys of the same name.
summary() { sed -n "s/^  \"$2\": \([^,]*\),\{0,1\}\$/\1/p" "$1/metrics.json"; }
# Step and values of every line of metrics.jsonl, without what depends on the time.
lines() { grep -o '"step":[0-9]*,"[a-z_]*":[^,}]*\(,"grad_norm":[^,]*,"learning_rate":[^,]*\)\?' "$1/metrics.jsonl"; }
# sum_up WHAT NUMBER: adds a line to the file SUMS, where one is set: date, commit, script, seed, number, status, seconds.
sum_up() {
  [ -z "${SUMS:-}" ] || printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$(date -u +%F)" "$(git -C "$SOURCE" rev-parse --short HEAD 2>/dev/null)" \
    "$1" "$SEED" "$2" "$failed" "$SECONDS" >>"$SUMS"
}
