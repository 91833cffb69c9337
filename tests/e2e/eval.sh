#!/usr/bin/env bash
# fsdp eval: the loss that another implementation computed, the validation loss of `fsdp train`, the
# same on 1 to 3 ranks as threads and processes; adapters; mistakes in one clear line.
# Environment: FSDP the program, SOURCE the repository, MPIRUN how to start processes (empty: no MPI).
# Requirements: S1.8.
source "$(dirname "$0")/../support/e2e.sh"
fixtures=$SOURCE/tests/fixtures/models
# value KEY: of the JSON on stdin
value() { sed -n "s/^ *\"$1\": \"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}\$/\1/p"; }
# near WHAT EXPECTED GOT RELATIVE
near() {
  awk -v a="$2" -v b="$3" -v r="$4" 'BEGIN { d = a - b; if (d < 0) d = -d
    exit !(a != "" && b != "" && d <= r * a) }' || fail "$1: expected '$2', got '$3'"
}

# ---- a reference's tokens as a text --------------------------------------------------------------
# A tokenizer that knows single characters, one for each of the model's tokens: the reference's rows
# become texts, each with the loss that transformers' f64 logits give it.
if command -v python3 >/dev/null; then
  cat >rows.py <<'PY'
import json, math, shutil, struct, sys
source, out = sys.argv[1:]
shutil.copytree(source, out, ignore=shutil.ignore_patterns("generation*", "trajectory*"))
data = open(f"{source}/reference.safetensors", "rb").read()
size = struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8:8 + size])
def integers(name):
    begin, end = (8 + size + offset for offset in header[name]["data_offsets"])
    return struct.unpack(f"<{(end - begin) // 8}q", data[begin:end])
rows, length = header["input_ids"]["shape"]
ids = integers("input_ids")
config = json.load(open(f"{source}/config.json"))
vocabulary = config["vocab_size"]
config.pop("eos_token_id", None)  # else a document has one token more
json.dump(config, open(f"{out}/config.json", "w"))
vocab = {chr(0x4e00 + i): i for i in range(vocabulary)}
json.dump({"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": None,
           "post_processor": None, "decoder": {"type": "Fuse"},
           "model": {"type": "BPE", "vocab": vocab, "merges": []}}, open(f"{out}/tokenizer.json", "w"))
# Else the model_type names a class with tokens of its own.
json.dump({"tokenizer_class": "PreTrainedTokenizerFast"}, open(f"{out}/tokenizer_config.json", "w"))
for row in range(rows):
    tokens = ids[row * length:(row + 1) * length]
    open(f"{out}/row{row}.txt", "w").write("".join(chr(0x4e00 + i) for i in tokens))
    begin = 8 + size + header["logits"]["data_offsets"][0] + 8 * row * length * vocabulary
    loss = 0
    for t in range(length - 1):
        logits = struct.unpack_from(f"<{vocabulary}d", data, begin + 8 * t * vocabulary)
        loss += math.log(sum(map(math.exp, logits))) - logits[tokens[t + 1]]
    open(f"{out}/row{row}.loss", "w").write(repr(loss / (length - 1)))
PY
  rows=0
  for model in gpt2 llama_gqa_llama3; do
    python3 rows.py "$fixtures/$model" "$model" || fail "rows.py $model"
    for text in "$model"/row*.txt; do
      [ -f "$text" ] || continue
      rows=$((rows + 1))
      for options in "" "--local-ranks 3"; do
        # shellcheck disable=SC2086
        near "$text $options" "$(cat "${text%.txt}.loss")" \
          "$("$FSDP" eval "$model" --data "$text" --dtype f64 --json $options | value loss)" 1e-12
      done
    done
  done
  [ "$rows" -ge 4 ] || fail "expected rows of two references, got $rows"
else
  echo "[SKIP] eval of reference rows: no python3"
fi

# ---- the validation loss of training -------------------------------------------------------------
for i in {1..40}; do echo "line $i of forty lines, and a little more text $((i * i))"; done >train.txt
head -c 639 train.txt >validation.txt  # with the end of text 640 tokens: whole sequences
cat >config.yaml <<'YAML'
model: {model_type: gpt2, hidden_size: 16, layers: 1, heads: 2}
data: {train: train.txt, validation: validation.txt, sequence_length: 16}
train: {steps: 3, batch: 4}
runtime: {run_dir: run}
YAML
"$FSDP" train --config config.yaml --local-ranks 2 >log 2>&1 || fail "train: $(cat log)"
validation=$(tr ',' '\n' <run/metrics.json | sed -n 's/.*"validation_loss": *//p')
"$FSDP" eval run/model --data validation.txt --sequence-length 16 --batch 4 --json >one.json ||
  fail "eval"
near "train's validation loss" "$validation" "$(value loss <one.json)" 1e-6
same "predicted tokens" 600 "$(value predicted_tokens <one.json)"
same "tokens" 640 "$(value tokens <one.json)"
same "bytes" 639 "$(value bytes <one.json)"
near "perplexity" "$(value loss <one.json | awk '{ printf "%.12g", exp($1) }')" \
  "$(value perplexity <one.json)" 1e-9
near "bits per token" "$(value loss <one.json | awk '{ printf "%.12g", $1 / log(2) }')" \
  "$(value bits_per_token <one.json)" 1e-9
near "bits per byte" "$(value bits_per_token <one.json | awk '{ printf "%.12g", $1 * 640 / 639 }')" \
  "$(value bits_per_byte <one.json)" 1e-9
# overlapping sequences: every token but the first is predicted
for options in "--local-ranks 1" "--local-ranks 2" "--local-ranks 2 --strategy no_shard" \
  "--local-ranks 3 --batch 2"; do
  # shellcheck disable=SC2086
  "$FSDP" eval run/model --data validation.txt --stride 5 --json --dtype f64 $options >other.json
  [ -f first.json ] || cp other.json first.json
  near "$options" "$(value loss <first.json)" "$(value loss <other.json)" 1e-12
  same "$options: predicted" 639 "$(value predicted_tokens <other.json)"
done
if [ -n "${MPIRUN:-}" ]; then
  $MPIRUN -n 2 "$FSDP" eval run/model --data validation.txt --stride 5 --json --dtype f64 >mpi.json
  near "under mpirun" "$(value loss <first.json)" "$(value loss <mpi.json)" 1e-12
else
  echo "[SKIP] eval under mpirun: no MPI"
fi
near "bf16" "$(value loss <first.json)" \
  "$("$FSDP" eval run/model --data validation.txt --stride 5 --json --dtype bf16 | value loss)" 2e-2
"$FSDP" eval run/model --data validation.txt --local-ranks 2 2>/dev/null |
  grep -q "^bits per byte  *[0-9.]*$" || fail "the table"

# ---- rows as a run has them: the loss that the run's own evaluation has --------------------------
if command -v python3 >/dev/null; then
  python3 - <<'PY'
import json
def squad(name, count):
    rows = [{"id": str(i), "question": f"What is {i}?", "answers": [{"text": "a" * (i % 5 + 1), "answer_start": 0}]}
            for i in range(count)]
    json.dump({"version": "1.1", "data": [{"title": "t", "paragraphs": [{"context": "It is aaaaa.", "qas": rows}]}]},
              open(name, "w"))
squad("squad_train.json", 17)
squad("squad_valid.json", 11)
PY
  cat >rows.yaml <<'YAML'
model: {model_type: llama, hidden_size: 24, layers: 1, heads: 3, max_positions: 128}
data: {train: squad_train.json, validation: squad_valid.json, format: squad, sequence_length: 60}
train: {steps: 3, batch: 4, lr: 1e-2}
YAML
  # rows_equal NAME KEY=VALUE...: trains, and compares the run's last validation with eval's
  rows_equal() {
    local name=$1 said keys=() key
    shift
    for key in "$@"; do keys+=(--set "$key"); done
    "$FSDP" train --config rows.yaml --local-ranks 2 --set runtime.run_dir="$name" "${keys[@]}" >log 2>&1 ||
      { fail "train $name: $(cat log)"; return; }
    said=$(tr ',' '\n' <"$name/metrics.json" | sed -n 's/.*"validation_loss": *//p')
    [ -n "$said" ] || fail "$name: no validation loss"
    same "$name: the run's configuration" "$said" \
      "$("$FSDP" eval "$name/model" --config "$name/config.yaml" --local-ranks 2 --json 2>/dev/null | value loss)"
    near "$name: on one rank, in other batches" "$said" \
      "$("$FSDP" eval "$name/model" --config "$name/config.yaml" --batch 3 --json 2>/dev/null | value loss)" 1e-6
    grep -q "^step 3: validation loss $("$FSDP" eval "$name/model" --config "$name/config.yaml" 2>/dev/null |
      sed -n 's/^loss  *\([0-9.]*\) .*/\1/p')\$" log || fail "$name: eval does not print what train prints: $(cat log)"
  }
  rows_equal sft data.objective=sft data.pad=left
  rows_equal mask_pad data.objective=mask_pad data.pad_to=length
  rows_equal kaust data.objective=kaust_compat
  rows_equal all data.objective=compat_all
  rows_equal lines data.format=text data.pack=wikitext_rows data.train=train.txt data.validation=train.txt data.sequence_length=16
  rows_equal share data.objective=sft data.validation=20% train.rows_per_pass=1
  rows_equal sources data.objective=sft data.validation=20% data.train=[] \
    'data.sources=[{path: squad_train.json, weight: 2}, {path: squad_valid.json}]'
  # --data and keys alone are the same data; a subset that is typed is one of what is evaluated
  typed=(--data squad_valid.json --set data.format=squad data.objective=sft data.pad=left data.sequence_length=60)
  near "typed keys" "$("$FSDP" eval sft/model --config sft/config.yaml --json 2>/dev/null | value loss)" \
    "$("$FSDP" eval sft/model "${typed[@]}" --json 2>/dev/null | value loss)" 1e-6
  same "rows of a subset" 3 "$("$FSDP" eval sft/model "${typed[@]}" data.subset.n=3 --json 2>/dev/null | value sequences)"
else
  echo "[SKIP] eval of rows: no python3"
fi

# ---- an adapter: the same as the model that it was merged into -----------------------------------
printf '{"t": "%s"}\n' "first row" "second row, a longer one" >rows.jsonl
"$FSDP" train --config config.yaml --set model.path=run/model --set lora.r=2 --set lora.alpha=8 \
  --set runtime.run_dir=tuned --set train.lr=0.01 >log 2>&1 || fail "train lora: $(cat log)"
"$FSDP" merge tuned/adapter merged >/dev/null || fail "merge"
loss() { "$FSDP" eval "$@" --data rows.jsonl --field t --json --dtype f64 | value loss; }
near "an adapter" "$(loss merged)" "$(loss tuned/adapter --local-ranks 2)" 1e-5
[ "$(loss tuned/adapter)" != "$(loss run/model)" ] || fail "the adapter changes nothing"

# ---- oddities of the files are said once, by rank 0 ----------------------------------------------
"$FSDP" convert run/model split --max-shard-size 10kB >/dev/null || fail "convert"
sed -i 's/"total_size": [0-9]*/"total_size": 7/' split/model.safetensors.index.json
said() { [ "$(grep -c "note: .*total_size is 7, the tensors have" <<<"$2")" = 1 ] || fail "$1: $2"; }
said "eval" "$("$FSDP" eval split --data validation.txt --local-ranks 3 2>&1)"
said "generate" "$("$FSDP" generate split --prompt a --tokens 2 --local-ranks 2 2>&1)"
said "train" "$("$FSDP" train --config config.yaml --set model.path=split --local-ranks 2 \
  --set runtime.run_dir=again 2>&1)"

# ---- kept tokens ---------------------------------------------------------------------------------
# A text with another content, but the size and time of the one whose tokens are kept.
cp validation.txt changing.txt
tr 'a-y' 'b-z' <validation.txt >other.txt
touch -d 2020-01-01 changing.txt other.txt
before=$(stat -c '%s %Y' changing.txt)
sleep 2.1  # what changed a moment ago is read again in any case
changing() { "$FSDP" eval run/model --data "$1" --sequence-length 16 --json | value loss; }
old=$(changing changing.txt)
same "the kept tokens of a text" "$old" "$(changing changing.txt)"
cp -p other.txt changing.txt
same "size and time of the text" "$before" "$(stat -c '%s %Y' changing.txt)"
new=$(changing changing.txt)
same "a text changed to the same size and time" "$(changing other.txt)" "$new"
[ "$old" != "$new" ] || fail "the old tokens were used: $old"

# ---- mistakes ------------------------------------------------------------------------------------
: >empty.txt
mistake "--data: expected files" eval run/model
mistake "nowhere: no such folder" eval nowhere --data train.txt
mistake "none.txt" eval run/model --data none.txt --local-ranks 2
mistake "empty.txt: the file is empty" eval run/model --data empty.txt
mistake 'rows.jsonl:1: no field "text"' eval run/model --data rows.jsonl
mistake "vocabulary mismatch" eval "$fixtures/gpt2" --data train.txt --local-ranks 2
mistake "--sequence-length: the model has 16 positions, got 17" eval run/model --data train.txt \
  --sequence-length 17 --local-ranks 2
mistake "--stride: expected 1 to the sequence length of 8, got 9" eval run/model --data train.txt \
  --sequence-length 8 --stride 9
mistake "--data: expected files, or --config with data.validation" eval run/model --set data.pack=examples
mistake "--set train.lr=3: expected a key of data, or train.seed" eval run/model --data train.txt --set train.lr=3
mistake "--set data.shuffle=false: data.shuffle has no effect here" eval run/model --data train.txt --set data.shuffle=false
mistake "--set data.train: it has no effect on an evaluation of files" eval run/model --data train.txt --set data.train=train.txt
mistake "excludes --stride" eval run/model --data train.txt --stride 3 --set data.pack=examples
mistake "data.sequence_length: the model has 16 positions, got 256" eval run/model --data train.txt --set data.pack=examples
mkfifo pipe.txt
mistake "pipe.txt: expected a file, got a FIFO" eval run/model --data pipe.txt --local-ranks 2
mistake "--dtype" eval run/model --data train.txt --dtype f8

exit "$failed"
