# A table whose cells with commas or line ends stand without quotes
# why: a row of another number of cells than the header has is a cell that is cut
# source: https://github.com/pandas-dev/pandas/issues/22144
# before: trained on as a text, without a word
# expect: rows.csv:2: expected 2 cells as the header has, got 3
# status: 1
printf 'text,n\nwell, well,1\n' >rows.csv
"$FSDP" tokenize --tokenizer bytes --data rows.csv
