#!/usr/bin/env bash
# Each guide's own configuration through fsdp adopt, explain and a short train on two ranks. What
# explain and train are given besides is what the guide's file does not name, and small sizes.
# Environment: FSDP the program, SOURCE the repository.
# Requirements: S1.1, S1.12, S3.9.
source "$(dirname "$0")/../support/e2e.sh"
fixtures=$SOURCE/tests/fixtures/adopt

# adopted NAME PROGRAM ARGUMENTS...: writes NAME.yaml
adopted() {
  local name=$1; shift
  "$FSDP" adopt "$@" >"$name.yaml" 2>log || fail "adopt $*: $(cat log)"
}
# explained NAME WORLD TEXT OPTIONS...: explain takes the file as it is, and its output has the text
explained() {
  local name=$1 world=$2 text=$3; shift 3
  "$FSDP" explain --world "$world" --config "$name.yaml" "$@" >log 2>&1 || fail "explain $name: $(cat log)"
  grep -q -- "$text" log || fail "explain $name: no '$text': $(head -20 log)"
}
# trained NAME OPTIONS...: two steps
trained() {
  local name=$1; shift
  "$FSDP" train --local-ranks 2 --config "$name.yaml" --set runtime.run_dir="run_$name" \
    --set train.steps=2 --set data.sequence_length="${length:-32}" --set train.log_every=1 "$@" \
    >"$name.log" 2>&1 || fail "train $name: $(cat "$name.log")"
  grep -qE "^step 2/2 |^\(2/2\) loss=|\"num_updates\":\"[12]\"|'train_loss'" "$name.log" || fail "train $name: no second step: $(cat "$name.log")"
}
# tiny FOLDER FAMILY: a model there, as somebody has put it there for the guide
tiny() {
  mkdir -p "$(dirname "$1")"
  "$FSDP" train --data games.jsonl --set model.model_type="$2" --set model.hidden_size=16 \
    --set model.layers=2 --set model.heads=2 --set data.sequence_length=32 --set train.steps=1 \
    --set model.max_positions=2048 --set runtime.run_dir="tiny_$2" >log 2>&1 ||
    fail "tiny $2: $(cat log)"
  mv "tiny_$2/model" "$1"
}
head -520 "$SOURCE/tools/data/chess/train.jsonl" >games.jsonl
cp games.jsonl strategic_game_chess.jsonl
# 520 questions of SQuAD's form
questions=$(for i in {1..520}; do
  echo "{\"id\": \"$i\", \"question\": \"What is $i?\", \"answers\": [{\"text\": \"a number\", \"answer_start\": 5}]},"
done)
echo "{\"version\": \"1.1\", \"data\": [{\"title\": \"t\", \"paragraphs\": [{\"context\": \"It is a number.\", \"qas\": [${questions%,}]}]}]}" >squad.json
# little_endian BYTES NUMBER...; data_bin FILE: 40 sentences of 20 tokens, as fairseq-preprocess
# writes them, in 16 bits
little_endian() {
  local size=$1 number; shift
  for number in "$@"; do
    for ((i = 0; i < size; ++i)); do printf "\\x$(printf %02x $((number >> 8 * i & 255)))"; done
  done
}
data_bin() {
  { printf 'MMIDIDX\0\0'; little_endian 8 1; little_endian 1 8; little_endian 8 40
    for sentence in {1..40}; do little_endian 4 20; done
    for sentence in {0..39}; do little_endian 8 $((sentence * 40)); done; } >"$1.idx"
  for sentence in {1..40}; do little_endian 2 {5..23} 2; done >"$1.bin"
}
mkdir -p data-bin/wikitext-103-roberta-bpe-bin
data_bin data-bin/wikitext-103-roberta-bpe-bin/train
data_bin data-bin/wikitext-103-roberta-bpe-bin/valid

# ---- chess: CodeLlama-7b ---------------------------------------------------------------------------
tiny codellama/CodeLlama-7b-hf llama
# The guide's script hands its words over; jq counts its GPUs.
handed_over() {
  torchrun() { adopted chess chess -- "$@"; }
  jq() { echo 2; }
  SLURM_NNODES=1 CUDA_VISIBLE_DEVICES=0,1 . "$fixtures/chess_finetune.sh"
}
handed_over
explained chess 2 "full_shard on 2 ranks"
trained chess
adopted chess_ddp chess -- --no_fsdp --batch_size_per_device 2 --gradient_accumulation_steps 2
explained chess_ddp 2 "no_shard on 2 ranks"
trained chess_ddp
grep -q "effective batch 8 = 2 rows x 2 ranks x 2 micro-steps" chess_ddp.log ||
  fail "chess: another batch: $(cat chess_ddp.log)"

# ---- workshop: variables, TrainingArguments ---------------------------------------------------------
tiny bigscience/bloom-560m bloom
# with_variables FILE command...
with_variables() { (set -a; . "$1" >/dev/null; set +a; shift; "$@"; exit "$failed") || failed=1; }
with_variables "$fixtures/env_vars.sh" adopted env env
explained env 2 "full_shard on 2 ranks" --data squad.json
length=128 trained env --data squad.json
grep -q "^data.objective: sft" env.log || fail "env: $(grep ^data env.log)"
with_variables "$fixtures/env_vars.sh" adopted env_literal env --literal
trained env_literal --data squad.json
grep -q "^data.objective: kaust_compat" env_literal.log || fail "env: $(grep ^data env_literal.log)"
with_variables "$fixtures/env_vars_custom.sh" adopted custom env
explained custom 2 "workshop_gpt, 3 layers" --data squad.json --set data.tokenizer=bytes
length=128 trained custom --data squad.json --set model.hidden_size=32 \
  --set model.heads=2 --set model.ffn=64 --set data.tokenizer=bytes
# What the guide's programs do at every epoch; stdout has their Trainer's lines, and no tables of ours.
with_variables "$fixtures/env_vars.sh" adopted best env --ranks 2 --data squad.json \
  --validation squad.json --model bigscience/bloom-560m
"$FSDP" train --local-ranks 2 --config best.yaml --set runtime.run_dir=best --set data.subset.n=96 \
  --set train.epochs=2 --set data.sequence_length=64 --set data.validation_subset.n=4 >best.out 2>best.log ||
  fail "train best: $(cat best.log)"
[ "$(grep -c "'eval_loss'" best.out)" = 2 ] || fail "best: not two evaluations: $(cat best.out)"
grep -q '^  "best_step": [24],' best/metrics.json || fail "best: $(grep best_step best/metrics.json)"
grep -q '^peak memory per rank' best.log || fail "best: no memory table on stderr: $(cat best.log)"
grep -q '^peak memory per rank' best.out && fail "best: the memory table is on stdout"
# A file whose lines and quotation marks a word processor has changed.
printf '%s\n' 'export MODEL_NAME=“bigscience/bloom-560m”' \
  'TRAIN_SIZE=250 export EVAL_SIZE=100 export NUM_EPOCHS=1 export' 'FP16=True export' >printed.sh
with_variables printed.sh adopted printed env
grep -q '^fsdp: warning: FP16 is not set' log || fail "printed: no warning: $(cat log)"
grep -q ' TRAIN_SIZE 1000,' printed.yaml || fail "printed: $(cat printed.yaml)"
adopted trainer hf "$fixtures/workshop_trainer.json"
explained trainer 2 "blocks.0 .. blocks.1" --model bigscience/bloom-560m --data games.jsonl
trained trainer --model bigscience/bloom-560m --data games.jsonl
# Two foreign files in one: the later one counts more.
echo 'include: [trainer.yaml, env.yaml]' >both.yaml
explained both 2 "full_shard on 2 ranks" --data squad.json
grep -q "= 8 rows x 2 ranks x 4 micro-steps" log || fail "both: the later file's rows do not count: $(head log)"
adopted literal hf --hf-compat "$fixtures/workshop_trainer.json"
explained literal 2 "full_shard on 2 ranks" --model bigscience/bloom-560m --data games.jsonl
grep -q "blocks.0" log && fail "--hf-compat: there are units besides the root: $(cat log)"

# ---- template: Pythia-1b by size --------------------------------------------------------------------
tiny EleutherAI/pythia-1b gpt_neox
adopted template hf "$fixtures/template_config.yaml"
explained template 2 "full_shard on 2 ranks" --data games.jsonl
trained template --data games.jsonl
grep -q "sequences (.* of each 1,000 rows)\|tokens dropped" template.log ||
  fail "template: lines are not joined by thousands: $(grep ^data template.log)"

# ---- accelerate: Mistral by class ---------------------------------------------------------------------
tiny mistralai/Mistral-7B-v0.1 mistral
adopted accelerate accelerate "$fixtures/accelerate_fsdp.yaml"
grep -q 'the defaults of fsdp train count: train.batch, train.lr, train.schedule.kind, train.steps, data.sequence' \
  accelerate.yaml || fail "accelerate: what is missing is not named: $(head -5 accelerate.yaml)"
explained accelerate 2 "blocks.0 .. blocks.31 *9 *218112000 " --model mistral-7b
trained accelerate --data games.jsonl --model mistralai/Mistral-7B-v0.1 --set train.rows_per_pass=2 \
  --set train.micro_steps=3
# The guide's own keys, and what it asks for beside them: tokens are steps x micro-steps x rows x
# length x ranks, labels one less of each row.
for key in wall_time_s approx_tokens approx_tokens_per_s approx_tokens_per_rank approx_tokens_per_s_per_rank \
  world_size torch gpu gpu0 model dataset fsdp bf16 use_lora gradient_checkpointing sharding_strategy \
  true_tokens tokens_per_s tokens_per_s_per_rank cpu peak_GiB; do
  grep -q "^  \"$key\": " run_accelerate/metrics.json || fail "accelerate: metrics.json has no $key"
done
for key in model dataset run_name max_steps seq_len bsz grad_accum lr seed subset_size bf16 use_lora; do
  grep -q "^  \"$key\": " run_accelerate/run_args.json || fail "accelerate: run_args.json has no $key"
done
[ "$(summary run_accelerate model)" = '"mistralai/Mistral-7B-v0.1"' ] ||
  fail "accelerate: model $(summary run_accelerate model)"
[ "$(summary run_accelerate approx_tokens)" = $((2 * 3 * 2 * 32 * 2)) ] ||
  fail "accelerate: approx_tokens: $(summary run_accelerate approx_tokens)"
[ "$(summary run_accelerate true_tokens)" = $((2 * 3 * 2 * 31 * 2)) ] ||  # the first of a row is no label
  fail "accelerate: true_tokens: $(summary run_accelerate true_tokens)"

# ---- fairseq: GPT-3 13B ---------------------------------------------------------------------------------
fairseq-train() { adopted fairseq fairseq -- "OMP_NUM_THREADS=$OMP_NUM_THREADS" fairseq-train "$@"; }
. "$fixtures/fairseq_13b.sh"
explained fairseq 2 "40 layers, 12853.47 M parameters"
trained fairseq --set model.hidden_size=16 --set model.layers=2 --set model.heads=2 \
  --set model.ffn=32 --threads 1

adopted lists fairseq --data more.bin --ranks 2 -- fairseq-train data-bin --lr "[0.0001]" --update-freq "[3]"
grep -q '^  lr: 0.0001 ' lists.yaml && grep -q '^  micro_steps: 3 ' lists.yaml &&
  grep -q '^  train: \["more.bin"\] ' lists.yaml || fail "lists: $(cat lists.yaml)"

# ---- DeepSpeed -----------------------------------------------------------------------------------------
adopted deepspeed deepspeed "$fixtures/deepspeed_zero3.json"
explained deepspeed 8 "full_shard on 8 ranks" --model gpt2-124m
trained deepspeed --data games.jsonl --model bigscience/bloom-560m --set train.batch=16

# ---- mistakes: one line, status 1 --------------------------------------------------------------------
# refused TEXT ARGUMENTS...
refused() {
  local text=$1; shift
  "$FSDP" adopt "$@" >out 2>log
  local status=$?
  [ $status -ne 0 ] || fail "adopt $*: not refused"
  [ ! -s out ] || fail "adopt $*: prints something: $(cat out)"
  [ "$(wc -l <log)" = 1 ] || fail "adopt $*: not one line: $(cat log)"
  grep -q -F -- "$text" log || fail "adopt $*: no '$text': $(cat log)"
}
sed 's/sharding_strategy/shardin_strategy/' "$fixtures/accelerate_fsdp.yaml" >typo.yaml
refused 'typo.yaml:12: unknown key "fsdp_config.fsdp_shardin_strategy" of accelerate; the nearest' \
  accelerate typo.yaml
refused "fsdp adopt accelerate reads it" hf "$fixtures/accelerate_fsdp.yaml"
refused "fsdp adopt deepspeed reads it" accelerate "$fixtures/deepspeed_zero3.json"
refused "fairseq_13b.sh: expected the words of a command, got a file" fairseq "$fixtures/fairseq_13b.sh"
refused "expected variables such as MODEL_NAME" env
refused "adopt env: file: a shell evaluates such a file: (set -a; . env.sh; set +a; fsdp adopt env)" env env.sh
touch train.py
refused 'add: open("args.json", "w").write(training_args.to_json_string())' hf train.py
refused "--model" hf "$fixtures/workshop_trainer.json" --model nowhere
refused "nowhere.yaml" accelerate nowhere.yaml
refused "file: missing" accelerate
refused "expected the words of a command, got nothing" fairseq
refused "expected a command: accelerate, hf, deepspeed, axolotl, llamafactory, fairseq, chess, env"

# Another program's file where ours is expected.
"$FSDP" train --config "$fixtures/workshop_trainer.json" --data games.jsonl >log 2>&1 && fail "another program's file is trained"
grep -q "this is a file of TrainingArguments: fsdp adopt hf .*workshop_trainer.json > my.yaml$" log || fail "no way over: $(cat log)"

# ~ is the home folder also behind "=", where the shell leaves it.
homes=$(HOME=/h "$FSDP" adopt hf "$fixtures/workshop_trainer.json" '--data=~/x.json' '--validation=~/y.json' 2>/dev/null)
[[ $homes == *"/h/x.json"*"/h/y.json"* ]] || fail "adopt: ~ is not the home folder: $homes"

exit "$failed"
