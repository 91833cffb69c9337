# The hub's SQuAD: a row for each question, answers as columns
# why: load_dataset("squad").to_json() writes it so; SQuAD's own files have paragraphs
# source: https://huggingface.co/datasets/rajpurkar/squad
# before: expected an object with "data", as files of SQuAD have
# expect: 97,256]
# expect: it holds columns, where rows are read; convert it: python3 -c
# expect: its rows seem to be in "rows": jq -c '.rows[].row' api.json
# expect: dict: a data set with test, train that datasets' save_to_disk wrote; convert it: python3 -c
# expect: d.load_from_disk
# status: 1
printf '{"id": "1", "title": "t", "context": "c", "question": "q", "answers": {"text": ["a"], "answer_start": [0]}}\n' >rows.jsonl
tokenize() { "$FSDP" tokenize --tokenizer bytes --data "$@"; }
tokenize rows.jsonl --set data.format=squad data.objective=sft data.sequence_length=100 data.pad_to=longest
printf '{"q": ["a", "b"], "r": ["c", "d"]}' >columns.json
tokenize columns.json
printf '{"features": [{"name": "text"}], "rows": [{"row_idx": 0, "row": {"text": "ab"}}]}' >api.json
tokenize api.json
mkdir -p dict/train dict/test
printf '{"splits": ["train", "test"]}' >dict/dataset_dict.json
: >dict/train/state.json
: >dict/test/state.json
tokenize dict
