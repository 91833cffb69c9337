#!/usr/bin/env bash
# fsdp report in headless Chromium: light and dark, wide and narrow, the curves that are drawn are the run's, and
# nothing is fetched; event files in TensorBoard's own reader. Both where they are installed.
# Environment: FSDP the program, SOURCE the repository.
. "$SOURCE/tests/support/e2e.sh"

seed=0
printf 'A text to train on, and no more than that. %.0s' {1..60} >text.txt
for run in one two; do  # of different seeds
  "$FSDP" train --local-ranks 2 --trace --set data.train=text.txt --set data.validation=text.txt \
    --set model.model_type=gpt2 --set model.hidden_size=16 --set model.layers=2 --set model.heads=2 \
    --set data.sequence_length=32 --set train.batch=2 --set train.steps=9 --set train.log_every=1 \
    --set train.eval_every=3 --set train.eval_batches=1 --set runtime.run_dir=$run \
    --set train.seed=$((++seed)) >train.log 2>&1 || fail "train $run: $(tail -3 train.log)"
done
cat >table.json <<'JSON'
[{"case": "ranks=1", "status": "ran", "reason": "", "ranks": 1, "values": {}, "median": {"speed_up": 1}, "spread": {}},
 {"case": "ranks=4", "status": "ran", "reason": "", "ranks": 4, "values": {}, "median": {"speed_up": 3.25}, "spread": {}}]
JSON
mkdir sweep && mv table.json sweep
"$FSDP" report sweep one two -o page.html >out || fail report
last() { grep -o "[{,]\"$2\":[^,}]*" "$1/metrics.jsonl" | tail -1 | cut -d: -f2; }

browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
look() { timeout 300 "$browser" --headless=new --no-sandbox --disable-gpu --user-data-dir="$scratch/profile" "$@" 2>browser.log; }
if [ -n "$browser" ]; then
  for scheme in 0 1; do  # dark, light
    for width in 500 1280; do
      look --blink-settings=preferredColorScheme=$scheme --window-size=$width,2000 --dump-dom "file://$scratch/page.html" >dom.html || fail "Chromium: $(tail -3 browser.log)"
      [ "$(grep -o 'class="u-wrap"' dom.html | wc -l)" = 5 ] || fail "expected 5 plots, width $width: $(grep -o 'class="u-wrap"' dom.html | wc -l)"
      grep -i 'Uncaught\|Refused to' browser.log && fail "the script fails"
      for keys in 'loss validation_loss' learning_rate grad_norm tokens_per_s; do
        # uPlot's own data after it has joined the runs: of each key the last value of each run.
        expected=$(for key in $keys; do last one "$key"; last two "$key"; done | paste -sd,)
        drawn=$(grep -o "data-keys=\"$keys\"[^>]*" dom.html | sed 's/.*data-last="\[\([^]]*\)\]".*/\1/')
        awk -v a="$expected" -v b="$drawn" 'BEGIN {
          n = split(a, x, ","); wrong = n == 0 || n != split(b, y, ",")
          for (i = 1; i <= n; ++i) wrong = wrong || x[i] + 0 != y[i] + 0
          exit wrong }' ||
          fail "$keys: the page draws $drawn, the runs end with $expected"
      done
      grep -q 'data-sweep="0"[^>]*data-last="\[3.25,4\]"' dom.html || fail "the scaling plot: $(grep -o 'data-sweep[^>]*' dom.html)"
    done
  done
else
  echo "[SKIP] report: no Chromium"
fi

"$FSDP" report one two --tensorboard board >events || fail "report --tensorboard"
if python3 -c 'import tensorboard' 2>/dev/null; then
  python3 - >read <<'PYTHON' || fail "TensorBoard cannot read the event file"
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

events = EventAccumulator("board/one")
events.Reload()
for tag in ("train/loss", "validation/loss"):
    for each in events.Scalars(tag):
        print(tag, each.step, "%.5g" % each.value)
PYTHON
  for pair in loss:train/loss validation_loss:validation/loss; do
    expected=$(grep -o "[{,]\"${pair%%:*}\":[^,}]*" one/metrics.jsonl | cut -d: -f2 | xargs printf '%.5g\n')
    [ "$(grep "^${pair#*:} " read | cut -d' ' -f3)" = "$expected" ] || fail "TensorBoard reads: $(cat read)"
  done
else
  echo "[SKIP] report: Python has no TensorBoard"
fi

[ "$failed" = 0 ] && echo "report in a browser: all is well"
exit "$failed"
