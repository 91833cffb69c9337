# A current folder that was deleted
# why: a cluster cleans its scratch folders, and a shell may still be in one
# source: https://pubs.opengroup.org/onlinepubs/9699919799/functions/getcwd.html
# before: fsdp: : No such file or directory
# expect: the current folder was deleted, or its storage is away: cd to another one
# expect: no such folder
# expect: the current folder was deleted
# status: 1
for i in 1 2 3 4 5 6 7 8 9; do echo "a line of a text, number $i"; done >text.txt
here=$PWD
mkdir gone && cd gone && rmdir ../gone || exit 2
"$FSDP" train --data "$here/text.txt" --batch 2 --set model.model_type=llama model.hidden_size=8 model.layers=1 \
  model.heads=2 data.tokenizer=bytes data.sequence_length=8 train.steps=1 checkpoint.every=0 \
  runtime.run_dir="$here/run" data.cache_dir="$here/c"
"$FSDP" generate m --ids 1
