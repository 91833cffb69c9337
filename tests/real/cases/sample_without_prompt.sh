# A sample of a run whose tokenizer has no end-of-text
# why: a tokenizer is trained without special tokens unless they are given
# source: https://huggingface.co/docs/tokenizers/api/trainers (special_tokens)
# before: the largest of no tokens was read, which may be anything
# expect: step 1
# expect: sample: none: no token of sample.prompt, and no end-of-text to begin
tokenizer t
printf 'abcabcabcabcabcabcabc' >ok.txt
tiny --steps 1 --set data.train=ok.txt data.tokenizer=t data.sequence_length=4 data.document_separator=false \
  train.save=false sample.tokens=2
