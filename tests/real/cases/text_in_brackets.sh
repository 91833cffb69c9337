# A text on the command line that stands in brackets
# why: it is Llama 2's form of a prompt; the parser of command lines took it for a list
# source: https://huggingface.co/blog/llama2#how-to-prompt-llama-2
# before: both brackets were dropped, and the text was cut at commas
# expect: 58 40 45 50 51 60 220 256 11 220 58 14 40 45 50 51 60
# expect: 58 64 11 65 60
tokenizer tok
"$FSDP" tokenize --tokenizer tok "[INST] hi, [/INST]" "[a,b]"
