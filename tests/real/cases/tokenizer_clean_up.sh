# clean_up_tokenization_spaces, as in folders of Llama 3 and GPT-NeoX
# why: where it is true, ids become text without the spaces before punctuation
# source: https://github.com/huggingface/transformers/issues/35175
# before: the spaces stayed
# expect: hi, the.
tokenizer tok
echo '{"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": true}' >tok/tokenizer_config.json
"$FSDP" tokenize --tokenizer tok --decode "256 220 11 259 220 13"
