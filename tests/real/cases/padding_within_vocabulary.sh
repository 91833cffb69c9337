# Rows are padded with a token that the model has
# why: a [PAD] that was added to the tokenizer alone has no row in the model's table
# source: https://huggingface.co/BirgerMoell/swe-gpt-wiki (50265 tokens beside vocab_size 50257)
# before: vocabulary mismatch: its tokenizer has 261 tokens, the model 97
# expect: with token 7
# expect: run directory: run
# never: with token 260
model m
tokenizer m '{"id": 260, "content": "[PAD]", "special": true}'
echo '{"pad_token": "[PAD]", "eos_token": "("}' >m/tokenizer_config.json
printf '{"text": "abc"}\n{"text": "abcabc"}\n' >rows.jsonl
"$FSDP" train --model m --data rows.jsonl --batch 2 --steps 1 --set data.pack=examples \
  data.sequence_length=8 sample.tokens=0 runtime.run_dir=run runtime.monitor_s=0
