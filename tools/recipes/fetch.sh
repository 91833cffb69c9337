#!/bin/sh
# Prints the commands that fetch what the guides really train: models, texts, tokens. The recipes need
# none of it. Nothing is fetched unless --run is given.
#   tools/recipes/fetch.sh [--run] [chess|bloom-squad|pythia-wikitext|mistral-alpaca|fairseq-13b ...]
# Commands: hf (pip install --upgrade huggingface_hub), wget, unzip; Python with datasets or fairseq where a
# comment says so. Files go below the current folder.
set -eu
all="chess bloom-squad pythia-wikitext mistral-alpaca fairseq-13b"

commands_of() {
  case $1 in
    chess) cat <<'END'
# CodeLlama-7B: 13 GB. The games are large; of a file of Parquet fsdp train prints the command that makes rows of JSON.
hf download codellama/CodeLlama-7b-hf --local-dir codellama/CodeLlama-7b-hf --include '*.json' --include '*.safetensors'
hf download laion/strategic_game_chess --repo-type dataset --local-dir strategic_game_chess
END
      ;;
    bloom-squad) cat <<'END'
# BLOOM-560M: 1.1 GB. SQuAD v1.1: 35 MB.
hf download bigscience/bloom-560m --local-dir bigscience/bloom-560m --include '*.json' --include '*.safetensors'
wget https://rajpurkar.github.io/SQuAD-explorer/dataset/train-v1.1.json
wget https://rajpurkar.github.io/SQuAD-explorer/dataset/dev-v1.1.json
END
      ;;
    pythia-wikitext) cat <<'END'
# Pythia-1B: 2.1 GB. wikitext-2, 12 MB, with Python's datasets: one row a line, blank ones too.
hf download EleutherAI/pythia-1b --local-dir EleutherAI/pythia-1b --include '*.json' --include '*.safetensors'
python3 -c "
from datasets import load_dataset
for split, rows in load_dataset('Salesforce/wikitext', 'wikitext-2-raw-v1').items():
    rows.to_json(f'wikitext-2-{split}.jsonl')"
END
      ;;
    mistral-alpaca) cat <<'END'
# Mistral-7B: 14.5 GB. Alpaca's rows, cleaned: 44 MB.
hf download mistralai/Mistral-7B-v0.1 --local-dir mistralai/Mistral-7B-v0.1 --include '*.json' --include '*.safetensors'
hf download yahma/alpaca-cleaned alpaca_data_cleaned.json --repo-type dataset --local-dir .
END
      ;;
    fairseq-13b) cat <<'END'
# wikitext-103, 190 MB, as token files.
git clone https://github.com/facebookresearch/fairseq && pip install ./fairseq
wget https://s3.amazonaws.com/research.metamind.io/wikitext/wikitext-103-raw-v1.zip
unzip wikitext-103-raw-v1.zip
wget https://dl.fbaipublicfiles.com/fairseq/gpt2_bpe/{encoder.json,vocab.bpe,dict.txt}
for split in train valid test; do
  PYTHONPATH=fairseq python3 -m examples.roberta.multiprocessing_bpe_encoder --encoder-json encoder.json --vocab-bpe vocab.bpe \
    --inputs wikitext-103-raw/wiki.$split.raw --outputs wiki.$split.bpe --keep-empty --workers 8
done
fairseq-preprocess --only-source --srcdict dict.txt --trainpref wiki.train.bpe --validpref wiki.valid.bpe \
  --testpref wiki.test.bpe --destdir data-bin/wikitext-103-roberta-bpe-bin --workers 8
END
      ;;
    *) echo "fetch.sh: expected one of $all, got $1" >&2; exit 2 ;;
  esac
}

run=false
guides=
for word in "$@"; do
  if [ "$word" = --run ]; then run=true; else guides="$guides $word"; fi
done
for guide in ${guides:=$all}; do commands_of "$guide" >/dev/null; done
for guide in $guides; do
  if $run; then commands_of "$guide" | bash -exuo pipefail; else commands_of "$guide"; fi
done
