# A tokenizer's file that is named without its folder
# why: the files beside it belong to it wherever the command is given
# source: https://huggingface.co/docs/transformers/main_classes/tokenizer
# before: tokenizer.json gave 256 259 and vocab.json 0 2: the class and its keys were not read
# expect: 260 256 259
# expect: 260 256 259
# expect: 260 256 259
# expect: 0 0 1
# expect: 0 0 1
tokenizer m '{"id": 260, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}'
echo '{"tokenizer_class": "LlamaTokenizer"}' >m/tokenizer_config.json
cd m
for name in tokenizer.json ./tokenizer.json .; do "$FSDP" tokenize --tokenizer $name "hi the"; done
mkdir ../v
cd ../v
echo '{"a": 0, "b": 1, "ab": 2}' >vocab.json
printf '#version: 0.2\na b\n' >merges.txt
echo '{"tokenizer_class": "GPT2Tokenizer", "added_tokens_decoder": {"0": {"content": "a", "special": true}}}' >tokenizer_config.json
for name in vocab.json .; do "$FSDP" tokenize --tokenizer $name aab; done
