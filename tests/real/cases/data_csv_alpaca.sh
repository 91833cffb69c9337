# Prompts and answers in a table, for an objective that trains the answers
# why: instruction data are shared as CSV, too
# source: https://huggingface.co/docs/datasets/loading#csv
# before: malformed JSON
# expect: "labels":[-100,
# expect: 121,101,115,256]
printf 'instruction,input,output\n"Say it, now",,yes\n' >rows.csv
"$FSDP" tokenize --tokenizer bytes --data rows.csv --set data.format=alpaca data.objective=sft
