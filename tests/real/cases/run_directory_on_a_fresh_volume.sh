# A run directory that is a fresh volume
# why: a new ext4 volume holds lost+found, and others .snapshot: a job with --resume auto is given such a volume
# source: https://tldp.org/LDP/Linux-Filesystem-Hierarchy/html/lostfound.html
# before: no run directory: neither config.yaml nor run_args.json
# expect: is there already; give another one, or --resume auto, which starts in an empty folder
# expect: run directory: run
for i in 1 2 3 4 5 6 7 8 9; do echo "a line of a text, number $i"; done >text.txt
mkdir -p run/lost+found run/.snapshot
tiny --data text.txt --steps 1 --set data.tokenizer=bytes data.sequence_length=8
tiny --data text.txt --steps 1 --resume auto --set data.tokenizer=bytes data.sequence_length=8
