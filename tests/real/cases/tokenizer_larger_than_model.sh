# A tokenizer with tokens beyond the model's vocabulary, which the text does not have
# why: transformers encodes and computes; only an id without a row of the table is an error
# source: https://huggingface.co/TheBloke/Wizard-Vicuna-30B-Uncensored-fp16 ([PAD] is 32000, vocab_size 32000)
# before: vocabulary mismatch: its tokenizer has 260 tokens, the model 97
# expect: note: the tokenizer m/tokenizer.json has 261 tokens, the model 97: a text with a token from 97
# expect: perplexity
# expect: bad.jsonl:2: token 256 ("hi") is beyond the model's vocabulary of 97
# never: vocabulary mismatch
# status: 1
model m
tokenizer m
printf 'abcabcabcabcabcabcabc' >ok.txt
printf '{"text": "abcabcabc"}\n{"text": "abchiabc"}\n' >bad.jsonl
"$FSDP" eval m --data ok.txt --sequence-length 8
"$FSDP" eval m --data bad.jsonl --sequence-length 8
