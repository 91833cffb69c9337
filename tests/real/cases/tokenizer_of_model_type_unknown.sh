# A model_type whose tokenizer class is not known here
# why: the ids may be others than those of transformers
# source: https://huggingface.co/facebook/bart-base
# before: not a word
# expect: note: tok/tokenizer.json: config.json has the model_type "bart", whose tokenizer class is not known here
# expect: 256
tokenizer tok
echo '{"model_type": "bart"}' >tok/config.json
"$FSDP" tokenize --tokenizer tok hi
