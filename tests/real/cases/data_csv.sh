# A table with a header as data: cells in quotes, doubled quotes, line ends in a cell, CRLF, a byte order mark
# why: spreadsheets and pandas write it so; a cell is a text, also one that looks like a number
# source: https://www.rfc-editor.org/rfc/rfc4180
# before: trained on header, commas and quotes as a text, without a word
# expect: 2 rows
# expect: [34,97,34,44,13,10,98,256]
# expect: [48,55,256]
# expect: [97,44,98,256]
# never: error
printf '\xef\xbb\xbfid,text\r\n1,"""a"",\r\nb"\r\n2,07\r\n' >rows.csv
printf 'text\tn\na,b\t1\n' >rows.tsv
for file in rows.csv rows.tsv; do
  "$FSDP" tokenize --tokenizer bytes --data $file --set data.pack=examples data.pad_to=longest
done
