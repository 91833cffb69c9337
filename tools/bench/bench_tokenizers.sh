#!/usr/bin/env bash
# make bench-tokenizers: how fast `fsdp tokenize` encodes a text on one core, and in the same run
# Hugging Face's tokenizers and tiktoken, where python3 has them (pip install tokenizers tiktoken).
#   tools/bench/bench_tokenizers.sh BUILD_FOLDER [FILE...]   texts; default: English in ../shared/data
#   TOKENIZER=FILE   a tokenizer.json; default: GPT-2's in ../shared/data
#   ROUNDS=N         of all programs in turn; default: 5
# MB/s: 10^6 bytes of UTF-8 in a second of the process's processor time, which other work on the
# machine disturbs less than the clock on the wall. A round has a process of each program, which
# knows no words at first, and seven passes: the first one and the fastest. Medians over rounds.
set -uo pipefail
build=${1:?usage: tools/bench/bench_tokenizers.sh BUILD_FOLDER [FILE...]}
shift
root=$(cd "$(dirname "$0")/../.." && pwd)
data=$root/../shared/data
tokenizer=${TOKENIZER:-$data/tokenizers/gpt2.json}
rounds=${ROUNDS:-5}
[ $# -gt 0 ] || set -- "$data/text/wikitext-2-test.txt" "$data/text/tinyshakespeare.txt"
for file in "$tokenizer" "$@"; do
  [ -r "$file" ] || { echo "$file: cannot be read (TOKENIZER=FILE and texts as arguments)"; exit 1; }
done
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export RAYON_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false OMP_NUM_THREADS=1
core=$(taskset -cp $$ 2>/dev/null | sed 's/.*[:,-] *//')  # the last one allowed
pin=${core:+taskset -c $core}

# LIBRARY TOKENIZER [TEXT]: as `fsdp tokenize --speed` prints it; without a text: its version, or why
# it cannot be measured.
cat >"$scratch/peer.py" <<'PY'
import json, sys, time
library, tokenizer = sys.argv[1:3]
if library == "tokenizers":
    import tokenizers
    version = tokenizers.__version__
    def make():
        loaded = tokenizers.Tokenizer.from_file(tokenizer)
        loaded.no_truncation()  # which the file may ask for
        return lambda text: len(loaded.encode(text, add_special_tokens=False).ids)
else:
    import tiktoken
    version = tiktoken.__version__
    spec = json.load(open(tokenizer, encoding="utf-8"))
    pre = spec.get("pre_tokenizer") or {}
    gpt2 = (pre.get("type") == "ByteLevel" and pre.get("use_regex", True)
            and not pre.get("add_prefix_space") and not spec.get("normalizer"))
    if not gpt2:
        sys.exit("its vocabulary is made for GPT-2's way of cutting a text, this tokenizer has another")
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    byte_of = {chr(b): b for b in printable}
    byte_of.update((chr(256 + i), b)
                   for i, b in enumerate(b for b in range(256) if b not in printable))
    added = {token["content"]: token["id"] for token in spec.get("added_tokens", [])}
    ranks = {bytes(byte_of[c] for c in token): id
             for token, id in spec["model"]["vocab"].items() if token not in added}
    pattern = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""
    def make():
        loaded = tiktoken.Encoding("file", pat_str=pattern, mergeable_ranks=ranks,
                                   special_tokens=added)
        return lambda text: len(loaded.encode_ordinary(text))
if len(sys.argv) == 3:
    make()("text")
    print(version)
    sys.exit()
with open(sys.argv[3], encoding="utf-8", newline="") as file:
    text = file.read()
size = len(text.encode())
lines = [line + "\n" for line in text.split("\n")]
lines[-1] = lines[-1][:-1]
if not lines[-1]:
    lines.pop()
for way, parts in ("line by line", lines), ("whole file", [text]):
    encode = make()
    speeds = []
    for _ in range(7):
        start = time.process_time()
        tokens = sum(map(encode, parts))
        speeds.append(size / 1e6 / (time.process_time() - start))
    print(f"{sys.argv[3]}, {way}: {size} bytes, {tokens} tokens, {max(speeds):.2f} MB/s,"
          f" first pass {speeds[0]:.2f}")
PY

peers=()
for library in tokenizers tiktoken; do
  if version=$(python3 "$scratch/peer.py" $library "$tokenizer" 2>"$scratch/why"); then
    peers+=("$library")
    echo "$library $version"
  else
    echo "$library skipped: $(tail -n 1 "$scratch/why")"
  fi
done

# run PROGRAM TEXT
run() {
  if [ "$1" = fsdp ]; then
    $pin "$build/fsdp" tokenize --tokenizer "$tokenizer" --speed --file "$2"
  else
    $pin python3 "$scratch/peer.py" "$1" "$tokenizer" "$2"
  fi
}
# column WAY COLUMN FILE: the median of what a program printed for the way: 1 tokens, 2 fastest, 3 first
column() {
  sed -n "s/.*, $1: [0-9]* bytes, \([0-9]*\) tokens, \([0-9.]*\) MB\/s, first pass \([0-9.]*\)\$/\\$2/p" \
    "$3" | sort -n | awk '{ v[NR] = $1 } END { print (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }'
}

processor=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
echo "${processor:-$(uname -m)}, one core, $(date +%Y-%m-%d), $rounds rounds; $tokenizer"
for text in "$@"; do
  rm -f "$scratch"/*.out
  for ((round = 0; round < rounds; round++)); do
    for program in fsdp "${peers[@]}"; do
      run "$program" "$text" >>"$scratch/$program.out" || { echo "$program failed on $text"; exit 1; }
    done
  done
  for way in "line by line" "whole file"; do
    echo "$text, $way: $(column "$way" 1 "$scratch/fsdp.out") tokens"
    ours=$(column "$way" 2 "$scratch/fsdp.out") ours_first=$(column "$way" 3 "$scratch/fsdp.out")
    printf '  %-12s %8.2f MB/s  first pass %8.2f\n' fsdp "$ours" "$ours_first"
    for program in "${peers[@]}"; do
      its=$(column "$way" 2 "$scratch/$program.out") first=$(column "$way" 3 "$scratch/$program.out")
      printf '  %-12s %8.2f MB/s  first pass %8.2f  fsdp: %5.2f x, first pass %5.2f x' "$program" \
        "$its" "$first" "$(awk "BEGIN { print $ours / $its }")" \
        "$(awk "BEGIN { print $ours_first / $first }")"
      tokens=$(column "$way" 1 "$scratch/$program.out")
      [ "$tokens" = "$(column "$way" 1 "$scratch/fsdp.out")" ] || printf '  (OTHER TOKENS: %s)' "$tokens"
      echo
    done
  done
done
