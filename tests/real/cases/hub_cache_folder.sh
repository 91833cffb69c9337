# The folder of a model in the hub's cache
# why: the model is in its snapshot; with several snapshots only the user knows which one
# source: https://huggingface.co/docs/huggingface_hub/guides/manage-cache
# before: config.json: cannot open: No such file or directory
# expect: 8 8
# expect: 256 259
# expect: models--org--name: a folder of the hub's cache with 2 snapshots; give one of them: models--org--name/snapshots/0123, models--org--name/snapshots/4567; refs/main says models--org--name/snapshots/0123
# expect: model.path: models--org--name: a folder of the hub's cache with 2 snapshots
# status: 78
cache=models--org--name
model $cache/snapshots/0123
tokenizer $cache/snapshots/0123
mkdir $cache/refs
printf 0123 >$cache/refs/main
"$FSDP" generate $cache --ids 5 --tokens 2
"$FSDP" tokenize --tokenizer $cache "hi the"
mkdir $cache/snapshots/4567
"$FSDP" generate $cache --ids 5 --tokens 2
printf abc >text.txt
"$FSDP" train --model $cache --data text.txt
