# A folder whose only tokenizer is a tokenizer.model
# why: bytes are not its tokenizer; transformers can write the tokenizer.json
# source: https://huggingface.co/openlm-research/open_llama_3b (tokenizer.model, no tokenizer.json)
# before: vocabulary mismatch: its tokenizer bytes has 257 tokens
# expect: m/tokenizer.model: a file of SentencePiece or tiktoken, which is not read; in Python
# expect: AutoTokenizer.from_pretrained("m").save_pretrained("m")
# never: bytes
# status: 1
model m
: >m/tokenizer.model
printf abc >text.txt
"$FSDP" eval m --data text.txt --sequence-length 4
