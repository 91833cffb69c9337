# add_prefix_space of tokenizer.json and of the class
# why: transformers sets it to that of tokenizer_config.json, to false where the key is not there
# source: https://github.com/huggingface/transformers/blob/v4.57.1/src/transformers/tokenization_utils_fast.py
# before: tokenizer.json decided, and a text began with a space
# expect: 256 259
# expect: 220 256 259
tokenizer tok
sed -i '0,/"add_prefix_space": false/s//"add_prefix_space": true/' tok/tokenizer.json
echo '{"tokenizer_class": "PreTrainedTokenizerFast"}' >tok/tokenizer_config.json
"$FSDP" tokenize --tokenizer tok "hi the"
echo '{"tokenizer_class": "PreTrainedTokenizerFast", "add_prefix_space": true}' >tok/tokenizer_config.json
"$FSDP" tokenize --tokenizer tok "hi the"
