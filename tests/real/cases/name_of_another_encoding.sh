# Folders and files whose names are no UTF-8
# why: a path is bytes; disks of older systems and zip files of Windows have names in Latin-1
# source: https://github.com/GoogleCloudPlatform/gsutil/issues/1625
# before: no checkpoint: incomplete UTF-8 string; last byte: 0xE9
# expect: run directory
# expect: resumed from c
# expect: run directory
# expect: goes on: 4
# expect: loss
# never: UTF-8
cafe=$(printf 'caf\xe9')
mkdir "$cafe" && cd "$cafe" || exit 1
for i in 1 2 3 4 5 6 7 8 9; do echo "a line of a text, number $i"; done >"x$cafe.txt"
train() {
  "$FSDP" train --data "x$cafe.txt" --batch 2 --set model.model_type=llama model.hidden_size=8 model.layers=1 \
    model.heads=2 runtime.run_dir="r$cafe" runtime.monitor_s=0 data.tokenizer=bytes data.sequence_length=16 \
    checkpoint.every=2 checkpoint.folder="c$cafe" "$@"
}
train train.steps=2
train train.steps=4 --resume auto
printf 'goes on: '; ls "c$cafe" | sed -n 's/^step-4$/4/p'
"$FSDP" eval "r$cafe" --data "x$cafe.txt" --cache-dir "t$cafe"
"$FSDP" report "r$cafe" -o "p$cafe.html" >/dev/null
"$FSDP" convert "c$cafe/step-4" "m$cafe" >/dev/null
