"""Chats, trained, saved and answered: greedy answers of fsdp generate --chat against transformers'.

Tiny models of Llama's, Qwen2's and Mistral's shape learn nine conversations on two ranks, all
weights and LoRA. What was saved is loaded by transformers (PEFT for LoRA), whose apply_chat_template
and greedy generation give the ids that ours must equal.
    PYTHON tests/differential/chat_training.py --fsdp build/fsdp [--mpirun 'mpirun -n 2']
Needs torch, transformers 4.57.1 and peft. Prints what was equal and exits 1 where something differs.
"""
import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile

import torch
from peft import PeftModel
from transformers import (AutoModelForCausalLM, AutoTokenizer, LlamaConfig, MistralConfig,
                          PreTrainedTokenizerFast, Qwen2Config)

FIXTURES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures")
TEMPLATES = json.load(open(os.path.join(FIXTURES, "chat", "goldens.json")))["templates"]
# Shape: configuration, tokenizer, template, end token, begin token, other special tokens.
SHAPES = {
    "llama": (LlamaConfig, "llama3", "llama3_header", "<|eot_id|>", "<|begin_of_text|>",
              ["<|start_header_id|>", "<|end_header_id|>"]),
    "qwen2": (Qwen2Config, "qwen2", "chatml", "<|im_end|>", None, ["<|im_start|>"]),
    "mistral": (MistralConfig, "mistral_v03", "mistral_tools", "</s>", "<s>", ["[INST]", "[/INST]"]),
}
FACTS = [("What is the capital of France?", "Paris, on the Seine."), ("Who wrote Hamlet?", "Shakespeare did."),
         ("2+2?", "4"), ("Say hello.", "Hello, friend!"), ("What colour is the sky?", "Blue by day \U0001f642"),
         ("Name a fruit.", "A red apple."), ("Is water wet?", "Yes."), ("Where is Oslo?", "In Norway.")]
TOKENS = 24  # of an answer


def conversations():
    talks = [[fact] for fact in FACTS] + [[FACTS[0], FACTS[2]]]
    return [[{"role": role, "content": text} for turn in talk for role, text in zip(("user", "assistant"), turn)]
            for talk in talks]


def run(*words):
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(words)}\n{done.stdout[-1500:]}{done.stderr[-3000:]}")
    return done.stdout


def make_base(shape):
    config, tokenizer, template, end, begin, special = SHAPES[shape]
    made = PreTrainedTokenizerFast(tokenizer_file=os.path.join(FIXTURES, "tokenizers", tokenizer, "tokenizer.json"),
                                   bos_token=begin, eos_token=end)
    made.add_special_tokens({"additional_special_tokens": special}, replace_additional_special_tokens=False)
    made.chat_template = TEMPLATES[template]["template"]
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(
        config(vocab_size=len(made), hidden_size=64, intermediate_size=128, num_hidden_layers=2,
               num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
               bos_token_id=made.bos_token_id, eos_token_id=made.eos_token_id, pad_token_id=None))
    model.save_pretrained(shape)
    made.save_pretrained(shape)


def train(options, shape, how):
    lora = ["lora.r=16", "lora.alpha=32", "lora.targets=all-linear", "train.steps=400"] if how == "lora" else [
        "train.steps=150"]
    keys = [f"model.path={shape}", "data.train=chat.jsonl", "data.sequence_length=128", "train.batch=4",
            "train.lr=5e-3", "train.schedule.kind=constant", f"runtime.run_dir={shape}-{how}", *lora]
    run(*shlex.split(options.mpirun), options.fsdp, "train", *(word for key in keys for word in ("--set", key)))
    return f"{shape}-{how}/{'adapter' if how == 'lora' else 'model'}"


def theirs(folder, shape, how, talks):
    model = AutoModelForCausalLM.from_pretrained(shape if how == "lora" else folder, dtype=torch.float32)
    model = (PeftModel.from_pretrained(model, folder) if how == "lora" else model).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for talk in talks:
        ids = tokenizer.apply_chat_template(talk[:-1], add_generation_prompt=True, return_tensors="pt")
        out = model.generate(ids, max_new_tokens=TOKENS, do_sample=False, eos_token_id=tokenizer.eos_token_id,
                             pad_token_id=0)[0, ids.shape[1]:].tolist()
        yield out[:-1] if out and out[-1] == tokenizer.eos_token_id else out


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fsdp", required=True)
    parser.add_argument("--mpirun", default="mpirun --oversubscribe -n 2")
    options = parser.parse_args()
    options.fsdp = os.path.abspath(options.fsdp)
    talks, equal, learned, total = conversations(), 0, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        with open("chat.jsonl", "w") as rows:
            rows.writelines(json.dumps({"messages": talk}) + "\n" for talk in talks)
        for shape in SHAPES:
            make_base(shape)
            for how in ("full", "lora"):
                saved = train(options, shape, how)
                replies = run(options.fsdp, "generate", saved, "--chat", "--prompts", "chat.jsonl", "--json",
                              "--tokens", str(TOKENS)).strip().split("\n")
                for talk, reply, ids in zip(talks, map(json.loads, replies), theirs(saved, shape, how, talks)):
                    total += 1
                    equal += reply["new_ids"] == ids
                    learned += reply["reply"].strip() == talk[-1]["content"]
                print(f"{shape} {how}: {equal} of {total} answers equal so far, {learned} as trained", flush=True)
    return equal != total


if __name__ == "__main__":
    sys.exit(main())
