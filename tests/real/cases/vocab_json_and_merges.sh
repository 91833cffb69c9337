# vocab.json and merges.txt without a tokenizer.json
# why: AutoTokenizer converts them for the classes of GPT-2 and Qwen2
# source: https://huggingface.co/microsoft/DialoGPT-small (vocab.json, merges.txt, no tokenizer.json)
# before: vocabulary mismatch: its tokenizer bytes has 257 tokens
# expect: 2 1 0 3
# expect: perplexity
# expect: tokenizer: m/vocab.json
# expect: GPT2Tokenizer or Qwen2Tokenizer, got "BartTokenizer"; in Python, AutoTokenizer.from_pretrained("m")
# expect: got "LlamaTokenizer"; tokenizer_class of tokenizer_config.json must name one of the two
# status: 1
model m
echo '{"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3}' >m/vocab.json
printf '#version: 0.2\na b\n' >m/merges.txt
printf 'abbaabbaabba' >text.txt
"$FSDP" tokenize --tokenizer m 'abba<|endoftext|>'
"$FSDP" eval m --data text.txt --sequence-length 4
echo '{"tokenizer_class": "BartTokenizer"}' >m/tokenizer_config.json
"$FSDP" tokenize --tokenizer m abba
echo '{"tokenizer_class": "LlamaTokenizer"}' >m/tokenizer_config.json
"$FSDP" tokenize --tokenizer m abba
