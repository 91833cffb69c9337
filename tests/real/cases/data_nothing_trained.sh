# A run in which nothing is trained
# why: all rows are empty, or all answers are cut away
# source: https://github.com/huggingface/trl/issues/6668
# before: loss 0.0000 in every step, status 0
# expect: data.train (rows.jsonl): nothing is trained or predicted of any of its 2 rows
# expect: data.validation (rows.jsonl): nothing is trained or predicted of any of its 2 rows
# expect: warning: data.train (some.jsonl): nothing is trained or predicted of 2 of 3 rows
# never: step 1
printf '{"text":""}\n{"text":""}\n' >rows.jsonl
printf '{"text":"ab"}\n' | cat rows.jsonl - >some.jsonl
run() {
  "$FSDP" train --steps 2 --batch 2 --set model.model_type=llama model.hidden_size=8 model.layers=1 model.heads=2 \
    data.pack=examples data.sequence_length=16 runtime.run_dir=run runtime.monitor_s=0 train.save=false "$@"
}
run data.train=rows.jsonl
run data.train=some.jsonl data.validation=rows.jsonl
"$FSDP" tokenize --tokenizer bytes --data some.jsonl --set data.pack=examples
