#!/usr/bin/env bash
# Runs the whole set of tests in parts, a sitting at a time; `make test-all` calls it.
#   tests/test_all.sh commit|slow|thread|address|races|mutations|fuzz|busy1..busy5    one part
#   tests/test_all.sh all      every part that is not complete yet, without a limit of time
#   tests/test_all.sh table    writes the table of the parts into CONTRIBUTING.md
# busyN: the per-commit set once more, next to two processes that keep the cores busy. It shows tests that depend on load.
# BURNERS=0 starts no such process: where a build or another part keeps the cores busy.
# Every entry that passed is noted in .cache/test-all/COMMIT/PART.tsv, so the next call continues with
# the others; an entry that failed is run again. A sitting starts no entry that would end after MINUTES
# (30), by the seconds the entry took before. A changed working tree counts as a commit of its own.
# Exit status: 0 the part is complete and green, 1 an entry failed, 75 entries are left: call again.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2
parts=(commit slow thread address races mutations fuzz busy1 busy2 busy3 busy4 busy5)
readers=(safetensors index config adapter tokenizer rows template)
part=${1:?usage: tests/test_all.sh ${parts[*]} all table}
minutes=${MINUTES:-30}
commit=$(git rev-parse --short HEAD) || exit 2
git diff --quiet HEAD || commit+=-$(git diff HEAD | sha1sum | head -c 8)
notes=.cache/test-all/$commit

# entries BUILD [ctest arguments]: the names of a set
entries() {
  local build=$1
  shift
  ctest --test-dir "$build" -N "$@" 2>/dev/null | sed -n 's/^ *Test *#[0-9]*: //p'
}

# The names of all entries of a part. Builds what they need first.
prepare() {
  case $part in
    thread | address) export SANITIZE=$part build=build-$part ;;
    *) export SANITIZE="" build=build ;;
  esac
  if [ "$part" = fuzz ]; then
    printf '%s\n' "${readers[@]}"
    return
  fi
  timeout "${minutes}m" make tests >&2 || return
  case $part in
    commit | busy?) entries build -L 'unit|ranks|mpi|e2e|cuda_emulator' -LE slow ;;
    slow) entries build -L slow -E '^(races/|emulated/mutations$)' ;;
    races) cmake --build build --parallel "$(nproc)" --target test_cuda_races >&2 && entries build -R ^races/ ;;
    mutations) entries build -R '^emulated/mutations$' && echo survivors ;;
    *) entries "$build" -L 'unit|ranks|cuda_emulator' -LE slow ;;
  esac
}

# run ENTRY...: adds a line for each to the notes: entry, seconds, passed, failed, skipped
run() {
  local begin=$SECONDS status log=$notes/$part.log names
  case $part/$1 in
    fuzz/*) make fuzz FUZZ="$1" RUNS="${RUNS:-1000000}" >"$log" 2>&1 ;;
    mutations/survivors) tests/comm/fsdp/survivors.sh build >"$log" 2>&1 ;;
    *)
      names=$(printf '%s|' "$@")
      RESULTS=$notes/$part.tsv tests/run_tests.sh "$build" -R "^(${names%|})\$" >"$log" 2>&1
      ;;
  esac
  status=$?
  [ $status = 0 ] || cat "$log" >>"$notes/$part.failed.log"
  case $part/$1 in
    fuzz/* | mutations/survivors)
      printf '%s\t%s\t%s\t%s\t0\n' "$1" $((SECONDS - begin)) $((status == 0)) $((status != 0)) >>"$notes/$part.tsv"
      ;;
  esac
  return $status
}

# seconds_before ENTRY: how long it took on any commit; nothing: it never ran here
seconds_before() { cat .cache/test-all/*/"$part.tsv" 2>/dev/null | awk -F '\t' -v e="$1" '$1 == e { s = int($2) } END { print s }'; }

# The entries that have no line in the notes yet whose count of failures is 0.
left() { awk -F '\t' 'FILENAME ~ /tsv$/ { if ($4 == 0) done[$1] = 1; next } !($1 in done)' "$notes/$part.tsv" "$notes/$part.entries"; }

one_part() {
  mkdir -p "$notes"
  touch "$notes/$part.tsv"
  prepare >"$notes/$part.entries"
  case $? in
    0) ;;
    124) echo "test_all: $part: the build is not complete after $minutes minutes: call it again"; return 75 ;;
    *) echo "test_all: $part: the build failed"; return 1 ;;
  esac
  [ -s "$notes/$part.entries" ] || { echo "test_all: $part: no entry"; return 1; }
  local entry before tried=0 status=0 batch=() size=12
  case $part in slow | mutations | fuzz) size=1 ;; esac
  local total; total=$(wc -l <"$notes/$part.entries")
  mapfile -t todo < <(left)
  if [[ $part == busy? ]]; then
    for ((i = 0; i < ${BURNERS:-2}; ++i)); do (while :; do :; done) & done
    trap 'kill $(jobs -p) 2>/dev/null' EXIT
  fi
  for entry in "${todo[@]}"; do
    before=$(seconds_before "$entry")
    # An entry that never ran here may take half an hour itself.
    [ $((SECONDS + ${before:-$((size == 1 ? minutes * 30 : 0))})) -le $((minutes * 60)) ] || continue
    batch+=("$entry")
    if [ "${#batch[@]}" -ge "$size" ]; then
      run "${batch[@]}" || status=1
      tried=$((tried + ${#batch[@]})) batch=()
      echo "test_all: $part: $tried of ${#todo[@]} run in this sitting, $(left | wc -l) of $total left, $SECONDS s"
    fi
  done
  [ "${#batch[@]}" = 0 ] || run "${batch[@]}" || status=1
  local remaining; remaining=$(left)
  if [ "$status" = 1 ]; then
    echo "test_all: $part: failed on $commit: $(awk -F '\t' '$4 > 0 { print $1 }' "$notes/$part.tsv" | sort -u | tr '\n' ' '); see $notes/$part.failed.log"
    return 1
  fi
  if [ -n "$remaining" ]; then
    echo "test_all: $part: $(wc -l <<<"$remaining") of $total entries are left on $commit: call it again"
    return 75
  fi
  date -u +%F >"$notes/$part.stamp"
  echo "test_all: $part: complete on $commit: $(row | sed 's/^| *//; s/ *|$//; s/ *| */, /g')"
}

# One row of the table: the newest commit on which the part is complete, or else the newest one on which it began.
# `again`: entries that failed at first.
row() {
  local notes=.cache/test-all stamp date="not complete"
  stamp=$(ls -t "$notes"/*/"$part.stamp" 2>/dev/null | head -n 1)
  [ -z "$stamp" ] || date=$(cat "$stamp")
  [ -n "$stamp" ] || stamp=$(ls -t "$notes"/*/"$part.entries" 2>/dev/null | head -n 1)
  [ -n "$stamp" ] || { echo "| $part | never run here | | | | | | |"; return; }
  stamp=${stamp%.*}
  awk -F '\t' -v part="$part" -v commit="$(basename "$(dirname "$stamp")")" -v date="$date" -v of="$(wc -l <"$stamp.entries")" '
    { seconds += $2; if ($4 > 0) { bad[$1] = 1; open[$1] = 1 } else { passed[$1] = $3; skipped[$1] = $5; delete open[$1] } }
    END {
      for (e in passed) { ++entries; p += passed[e]; s += skipped[e]; if (e in bad) ++again }
      for (e in open) if (!(e in passed)) ++failed
      printf "| %s | %s, %s | %d of %d | %d | %d | %d | %d | %d |\n", part, commit, date, entries, of, seconds, p, failed, s, again
    }' "$stamp.tsv"
}

table() {
  local rows
  rows=$(echo "| part | commit, date | entries | seconds | passed | failed | skipped | failed at first |"
    echo "|---|---|---|---|---|---|---|---|"
    for part in "${parts[@]}"; do row; done)
  awk -v rows="$rows" '/<!-- end of parts -->/ { inside = 0 } !inside { print } /<!-- parts: / { inside = 1; print rows }' \
    CONTRIBUTING.md >CONTRIBUTING.md.tmp && mv CONTRIBUTING.md.tmp CONTRIBUTING.md
  printf '%s\n' "$rows"
}

case $part in
  table) table ;;
  all)
    worst=0
    for part in "${parts[@]}"; do
      [ ! -e "$notes/$part.stamp" ] || { echo "test_all: $part: complete on $commit"; continue; }
      MINUTES=100000 "$0" "$part" || worst=1
    done
    exit $worst
    ;;
  *)
    [[ " ${parts[*]} " == *" $part "* ]] || { echo "PART=$part: expected ${parts[*]}, all or table" >&2; exit 2; }
    [ ! -e "$notes/$part.stamp" ] || { echo "test_all: $part: complete on $commit"; exit 0; }
    one_part
    ;;
esac
