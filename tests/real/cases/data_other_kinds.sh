# Files that are no text of UTF-8
# why: data sets are shared compressed, as Parquet, as Arrow; Windows writes UTF-16; Git LFS leaves pointers
# source: https://huggingface.co/docs/datasets/about_arrow
# before: 'invalid UTF-8: byte 0x8b at offset 1'; the pointer was trained as a text
# expect: compressed by gzip; convert it: gzip -dk rows.jsonl.gz
# expect: zstd -d rows.jsonl.zst
# expect: a table of Parquet; convert it: python3
# expect: a table of Arrow (of datasets); convert it: python3
# expect: UTF-16; convert it: iconv -f UTF-16 -t UTF-8 rows.txt > rows.utf8.txt
# expect: a pointer of Git LFS
# expect: got a binary file (a zero byte at offset 3)
# expect: data.train: parts: no file in this folder ends with .jsonl, .json
# expect: parts/train.parquet: expected a text of UTF-8, got a table of Parquet
# status: 1
printf '{"text":"ab"}\n' | gzip >rows.jsonl.gz
printf '\x28\xb5\x2f\xfd\x04\x58' >rows.jsonl.zst
printf 'PAR1\x15\x04\x15PAR1' >rows.parquet
printf '\xff\xff\xff\xff\x78\x01\0\0' >rows.arrow
printf '\xff\xfea\0b\0' >rows.txt
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n' >lfs.jsonl
printf 'abc\0def' >binary.txt
mkdir parts && cp rows.parquet parts/train.parquet
for data in rows.jsonl.gz rows.jsonl.zst rows.parquet rows.arrow rows.txt lfs.jsonl binary.txt parts; do
  "$FSDP" tokenize --tokenizer bytes --data $data
done
