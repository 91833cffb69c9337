#!/usr/bin/env bash
# fsdp report: a page of runs that were trained here, of one that died, of a sweep's folder; event files of
# TensorBoard; what is refused. In a browser: report_browser_slow.sh.
# Environment: FSDP the program, SOURCE the repository.
. "$SOURCE/tests/support/e2e.sh"

printf 'A text to train on, and no more than that. %.0s' {1..60} >text.txt
train() {  # DIR OPTIONS...
  "$FSDP" train --local-ranks 2 --set data.train=text.txt --set data.validation=text.txt \
    --set model.model_type=gpt2 --set model.hidden_size=16 --set model.layers=2 --set model.heads=2 \
    --set data.sequence_length=32 --set train.batch=2 --set train.steps=6 --set train.log_every=1 \
    --set train.eval_every=3 --set train.eval_batches=1 --set runtime.run_dir="$@" >train.log 2>&1 ||
    fail "train $1: $(tail -3 train.log)"
}
# What the page has as JSON: one line.
data() { sed -n 's/^<script type="application\/json" id="data">\(.*\)<\/script>$/\1/p' "$1"; }
# The values of the page's curve of the first run, one a line; those of metrics.jsonl.
shown() { data "$1" | grep -o "\"$2\":{\"step\":\[[^]]*\],\"value\":\[[^]]*\]" | head -1 | sed 's/.*\[//; s/\]//' | tr ',' '\n'; }
logged() { grep -o "[{,]\"$2\":[^,}]*" "$1/metrics.jsonl" | cut -d: -f2; }
size() { stat -c %s "$1"; }
# The page as page.js lays it out; nothing without node.
layout() {
  ! command -v node >/dev/null || data "$1" | node -e 'const layout = require(process.argv[1]);
    process.stdout.write(layout.page(JSON.parse(require("fs").readFileSync(0, "utf8"))));' "$SOURCE/tools/page/page.js"
}
mistake() {  # 'part of the message' ARGUMENTS...
  local part=$1
  shift
  "$FSDP" report "$@" >out 2>err </dev/null && fail "status 0 of: report $*"
  [ "$(grep -c '^fsdp: ' err)" = 1 ] && grep -qF -- "$part" err || fail "no '$part' from report $*: $(cat err)"
}

bad='</script><b>x' # a folder and a name in it
mkdir '<'
train "$bad" --trace
train ddp --set fsdp.strategy=no_shard

# ---- two runs ------------------------------------------------------------------------------------
"$FSDP" report "$bad" ddp -o two.html >out || fail "report of two runs"
grep -q '^two.html: 2 runs, [0-9]' out || fail "report said: $(cat out)"
[ "$(size two.html)" -lt 2000000 ] || fail "two.html has $(size two.html) bytes"
for key in loss validation_loss learning_rate grad_norm tokens_per_s; do
  [ -n "$(shown two.html $key)" ] && [ "$(shown two.html $key)" = "$(logged "$bad" $key)" ] ||
    fail "$key: the page has $(shown two.html $key), the run $(logged "$bad" $key)"
done
data two.html | grep -q "\"weights_hash\":$(summary ddp weights_hash)" || fail "no metrics.json in the page"
grep -q '<b>x' two.html && fail "a name became HTML"
[ "$(grep -c '<script' two.html)" = "$(grep -c '</script>' two.html)" ] || fail "a name ended a script"
grep -q "default-src 'none'" two.html || fail "two.html may fetch something"
data two.html | grep -q '"strategy":"no_shard"' && data two.html | grep -q 'full_shard on 2 ranks' || fail "no settings, no units"
layout two.html >two || fail "the layout of two.html"
if [ -s two ]; then
  for text in '>Memory in step 6: at most' '>Rank 0, step 6<' 'url(#exposed)' 'No timeline: train with --trace' \
    '<th>blocks.0: all_gather</th>' 'full_shard on 2 ranks' 'no_shard on 2 ranks' '<th>reduce_scatter</th>' \
    '<tr class="differs"><th>fsdp.strategy</th><td>full_shard</td><td>no_shard</td></tr>'; do
    grep -q -- "$text" two || fail "two.html has no '$text'"
  done
  grep -q '<b>x' two && fail "a name became HTML in the layout"
  # The largest sum of the ledger's categories in the step, which is the run's peak here.
  peak=$(sed -n 's/.*Memory in step 6: at most \([0-9.]*\) MiB.*/\1/p' two)
  total=$(tr -d '\n ' <"$bad/metrics.json" | sed 's/.*"ledger":{"total":\([0-9]*\).*/\1/' | awk '{ printf "%.2f", $1 / 2 ^ 20 }')
  [ "$peak" = "$total" ] || fail "the picture's peak is $peak MiB, the ledger's $total"
  node "$SOURCE/tests/tools/page/layout_test.js" || fail "layout_test.js"
else
  echo "[SKIP] report: no node, which runs the page's script"
fi

# ---- a run that died, a sweep ----------------------------------------------------------------------
mkdir -p sweep/ranks=2/run1 && cp ddp/{config.yaml,run_args.json,progress.json} sweep/ranks=2/run1
touch -d '1 hour ago' sweep/ranks=2/run1/progress.json
head -c 600 ddp/metrics.jsonl >sweep/ranks=2/run1/metrics.jsonl
"$FSDP" report sweep/ranks=2/run1 -o died.html >out || fail "report of a run that died"
grep -q 'killed: step 6 of 6 finished' died.html && [ "$(shown died.html loss)" = "$(logged ddp loss | head -2)" ] ||
  fail "a run that died: $(shown died.html loss)"
cat >sweep/table.json <<'JSON'
[{"case": "ranks=1", "status": "ran", "reason": "", "ranks": 1, "values": {"speed_up": [1]}, "median": {"speed_up": 1}, "spread": {}},
 {"case": "ranks=2", "status": "failed", "reason": "status 9", "ranks": 2, "values": {"speed_up": [1.5]}, "median": {"speed_up": 1.5}, "spread": {"speed_up": 0.25}}]
JSON
"$FSDP" report sweep -o sweep.html >out || fail "report of a sweep"
grep -q '^sweep.html: 1 run,' out && data sweep.html | grep -q '"spread":{"speed_up":0.25}' || fail "the sweep's table: $(cat out)"

# ---- TensorBoard ---------------------------------------------------------------------------------
"$FSDP" report ddp --tensorboard board >out || fail "report --tensorboard"
if command -v python3 >/dev/null; then
  python3 - "$(cat out)" >events.txt <<'PYTHON' || fail "the event file cannot be read"
import struct, sys

def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF

def check(data, masked):
    crc = crc32c(data)
    assert ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF == struct.unpack("<I", masked)[0]

def fields(data):  # of a protocol buffer: number, value
    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at, value, shift = at + 1, value | (byte & 127) << shift, shift + 7
            if byte < 128:
                return value
    at = 0
    while at < len(data):
        tag = varint()
        kind = tag & 7
        if kind == 0:
            yield tag >> 3, varint()
            continue
        size = {1: 8, 5: 4}.get(kind) or varint()
        yield tag >> 3, data[at:at + size]
        at += size

data, at = open(sys.argv[1], "rb").read(), 0
while at < len(data):
    length, = struct.unpack("<Q", data[at:at + 8])
    check(data[at:at + 8], data[at + 8:at + 12])
    message = data[at + 12:at + 12 + length]
    check(message, data[at + 12 + length:at + 16 + length])
    at += 16 + length
    event = dict(fields(message))
    if 5 in event:
        scalar = dict(fields(dict(fields(event[5]))[1]))
        print(scalar[1].decode(), event[2], "%.6g" % struct.unpack("<f", scalar[2])[0])
    else:
        assert event[3] == b"brain.Event:2"
PYTHON
  for pair in loss:train/loss validation_loss:validation/loss grad_norm:train/grad_norm; do
    expected=$(logged ddp "${pair%%:*}" | while read -r value; do printf '%.6g\n' "$value"; done)
    [ "$(grep "^${pair#*:} " events.txt | cut -d' ' -f3)" = "$expected" ] || fail "event file: ${pair#*:}: $(cat events.txt)"
  done
else
  echo "[SKIP] report: python3, which reads the event file, is not there"
fi

# ---- what is not ours is what the README says ------------------------------------------------------
sed -n 's/^| `\(uplot\/[^`]*\)` | `\([0-9a-f]*\)` |$/\2  \1/p' "$SOURCE/tools/page/README.md" >sums
[ "$(wc -l <sums)" = 2 ] && (cd "$SOURCE/tools/page" && sha256sum -c --quiet "$scratch/sums") || fail "checksums of uPlot"

# ---- mistakes ------------------------------------------------------------------------------------
mistake 'expected -o FILE or --tensorboard DIR' ddp
mistake 'nowhere: no such folder' nowhere -o new.html
mkdir empty
mistake 'empty: expected config.yaml and run_args.json, of a run, or table.json, of a sweep' empty -o new.html
mistake 'empty: is a folder' ddp -o empty
mistake 'text.txt: exists already and is not a page of fsdp report' ddp -o text.txt
mistake 'nowhere/new.html: cannot create' ddp -o nowhere/new.html
[ ! -e new.html ] || fail "a refused report wrote a page"
"$FSDP" report ddp -o two.html >out || fail "a page of ours is replaced"

[ "$failed" = 0 ] && echo "report: all is well"
exit "$failed"
