"""Writes tests/fixtures/objectives.json: ids, mask and labels of rows as transformers and published scripts make them, and
the loss of tiny models on padded rows in true float64.

    python3 tests/differential/objectives.py tests/fixtures/objectives.json
"""

import json
import pathlib
import sys

import torch
from float64 import true_float64
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, DataCollatorForLanguageModeling, PreTrainedTokenizerFast, default_data_collator

FIXTURES = pathlib.Path(__file__).parent.parent / "fixtures"
NO_ANSWER = "No Answer"

QUESTIONS = {"version": "1.1", "data": [
    {"title": "Made up", "paragraphs": [
        {"context": "The sky was blue, and it rained in Z\u00fcrich.", "qas": [
            {"id": "q1", "question": "What colour was the sky?", "answers": [{"text": "blue", "answer_start": 12}, {"text": "the sky", "answer_start": 0}]},
            {"id": "q2", "question": "Who counted the \"drops\"?", "answers": []}]}]},
    {"title": "Other", "paragraphs": [
        {"context": "A long story {about} bread, water [and] the hundred and seven ways of the old mill at the river. " * 2, "qas": [
            {"answers": [{"answer_start": 21, "text": "bread, water"}], "id": "q3", "question": "What was it about?"}]}]}]}  # fmt: skip


def tokenizer(name, **options):
    return PreTrainedTokenizerFast(tokenizer_file=str(FIXTURES / "tokenizers" / name / "tokenizer.json"), **options)


def record(ids, mask, labels):
    return {"ids": [int(i) for i in ids], "mask": "".join(str(int(i)) for i in mask), "labels": [int(i) for i in labels]}


# ---- questions: the KAUST workshop's script, and supervised fine-tuning -------------------------------------------------
def kaust_compat(tok, question, length):
    """Prompt and answer tokenised apart, each cut and padded to the length; the padding token is no label."""
    prompt = tok(f"Question: {question['question']} Context: {question['context']} Answer:", truncation=True, padding="max_length", max_length=length)
    answer = tok(question["answer"], truncation=True, padding="max_length", max_length=length)["input_ids"]
    return record(prompt["input_ids"], prompt["attention_mask"], [t if t != tok.pad_token_id else -100 for t in answer])


def padded(tok, used, labels, length):
    missing = length - len(used)
    left, right = (missing, 0) if tok.padding_side == "left" else (0, missing)
    return record([tok.pad_token_id] * left + used + [tok.pad_token_id] * right, [0] * left + [1] * len(used) + [0] * right,
                  [-100] * left + labels + [-100] * right)  # fmt: skip


def sft(tok, parts, length):
    """Three calls; a long row loses the end of its first part."""
    ids = [tok(part, add_special_tokens=False)["input_ids"] for part in parts]
    begin = tok("")["input_ids"]  # begin-of-text, of tokenizers that put it
    head, cue, answer = begin + ids[0], ids[1], ids[2] + [tok.eos_token_id]
    used = head[: length - len(cue) - len(answer)] + cue
    return padded(tok, used + answer, [-100] * len(used) + answer, length)


def questions():
    for article in QUESTIONS["data"]:
        for paragraph in article["paragraphs"]:
            for qa in paragraph["qas"]:
                yield {"id": qa["id"], "question": qa["question"], "context": paragraph["context"], "answer": qa["answers"][0]["text"] if qa["answers"] else NO_ANSWER}


def squad():
    out = []
    for side in ("left", "right"):
        tok = tokenizer("bloom", pad_token="<pad>", eos_token="</s>", padding_side=side)
        for length in (24, 80):
            rows = [{"kaust_compat": kaust_compat(tok, q, length),
                     "sft": sft(tok, (f"Question: {q['question']} Context: {q['context']}", " Answer:", f" {q['answer']}"), length)} for q in questions()]  # fmt: skip
            out.append({"tokenizer": "bloom", "pad_token": tok.pad_token_id, "side": side, "length": length, "rows": rows})
    return out


# ---- instructions: whole texts ----------------------------------------------------------------------------------------------
def alpaca():
    fixture = json.loads((FIXTURES / "alpaca.json").read_text())
    out = []
    for name, end, lengths in (("llama2_legacy", "</s>", (32, 96)), ("gpt2_merges_old", None, (40,))):
        tok = tokenizer(name)
        tok.eos_token = end or next(t.content for t in tok.added_tokens_decoder.values() if t.special)
        tok.pad_token = tok.eos_token
        for length in lengths:
            rows = []
            for row, text in zip(fixture["rows"], fixture["texts"]):
                cue = "\n\n### Response:"
                at = text.index(cue)
                assert text == text[:at] + cue + row["output"]
                features = tok(text, truncation=True, padding="max_length", max_length=length, return_token_type_ids=False)
                masked = DataCollatorForLanguageModeling(tok, mlm=False)([dict(features)])
                copied = default_data_collator([{**features, "labels": list(features["input_ids"])}])
                labels = [t if m else -100 for t, m in zip(features["input_ids"], features["attention_mask"])]
                lm = record(features["input_ids"], features["attention_mask"], labels)
                others = {name: record(*(batch[k][0] for k in ("input_ids", "attention_mask", "labels"))) for name, batch in (("mask_pad", masked), ("compat_all", copied))}
                assert all(other[k] == lm[k] for other in others.values() for k in ("ids", "mask"))
                rows.append({"lm": lm, **{name: other["labels"] for name, other in others.items()}, "sft": sft(tok, (text[:at], cue, row["output"]), length)})
            out.append({"tokenizer": name, "pad_token": tok.pad_token_id, "side": "right", "length": length, "rows": rows})
    return out


# ---- losses of padded rows ----------------------------------------------------------------------------------------------------
ROWS = [[5, 9, 2, 7, 11], [3, 8], [1, 2, 3, 4, 5, 6, 7, 8, 9], [40, 41, 42, 43, 44, 45, 46]]
ANSWERS, LENGTH, PAD = [2, 1, 3, 7], 7, 0


def row_of(ids, answer, objective, side):
    kept = answer if objective == "sft" else 0
    ids = ids[: max(LENGTH - kept, 0)] + ids[len(ids) - kept :] if len(ids) > LENGTH else ids
    labels = [-100] * (len(ids) - answer) + ids[len(ids) - answer :] if objective == "sft" else list(ids)
    missing = LENGTH - len(ids)
    if side == "left" and missing:
        labels[0] = -100  # what stands before it is padding
    left, right = (missing, 0) if side == "left" else (0, missing)
    return record([PAD] * left + ids + [PAD] * right, [0] * left + [1] * len(ids) + [0] * right, [-100] * left + labels + [-100] * right)


def losses():
    out = []
    for name in ("gpt2", "llama_gqa_llama3", "bloom_padded", "mistral_window4", "neox_parallel"):
        for objective in ("lm", "sft"):
            for side in ("left", "right"):
                rows = [row_of(ids, answer, objective, side) for ids, answer in zip(ROWS, ANSWERS)]
                folder = FIXTURES / "models" / name
                values = {key: tensor.double() for key, tensor in load_file(folder / "model.safetensors").items()}
                with true_float64(), torch.no_grad():
                    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), attn_implementation="eager", dtype=torch.float64)
                    missing, unexpected = model.load_state_dict(values, strict=False)
                    assert not unexpected and all(key.endswith("lm_head.weight") for key in missing), (missing, unexpected)
                    model.tie_weights()
                    tensors = {k: torch.tensor([[int(i) for i in r[n]] for r in rows]) for k, n in (("input_ids", "ids"), ("attention_mask", "mask"), ("labels", "labels"))}
                    loss = model.eval()(**tensors).loss.item()
                counted = sum(t != -100 for r in rows for t in r["labels"][1:])
                out.append({"model": name, "objective": objective, "side": side, "loss_f64": loss, "label_tokens": counted})
    return {"rows": ROWS, "answers": ANSWERS, "length": LENGTH, "pad_token": PAD, "cases": out}


# ---- rows cut one by one, joined a thousand at a time (run_clm's group_texts in datasets' map) --------------------------------
def group_texts(rows, block):
    stream = [t for row in rows for t in row]
    return [stream[i : i + block] for i in range(0, len(stream) // block * block, block)]


def wikitext_rows():
    rows = [[(31 * i + j) % 1009 for j in range(700 if i == 17 else (7 * i * i + 3 * i) % 23)] for i in range(2345)]
    cut = [row[:16] for row in rows]
    groups = [group_texts(cut[i : i + 1000], 16) for i in range(0, len(cut), 1000)]
    blocks = [block for group in groups for block in group]
    return {"rows": len(rows), "length": 16, "cut": sum(len(row) > 16 for row in rows), "blocks_per_group": [len(group) for group in groups],
            "dropped": sum(map(len, cut)) - 16 * len(blocks), "blocks": {str(i): blocks[i] for i in (0, 1, 17, len(groups[0]) - 1, len(groups[0]), len(blocks) - 1)}}  # fmt: skip


def permutations():
    """torch.randperm, and what DistributedSampler and DataLoader make of it."""
    out = []
    for n, seed in ((1, 0), (10, 0), (10, 42), (269, 43), (87599, 42)):
        order = torch.randperm(n, generator=torch.Generator().manual_seed(seed)).tolist()
        out.append({"n": n, "seed": seed, "first": order[:40], "last": order[-3:]})
    return out


def main():
    fixture = {"questions": QUESTIONS, "squad": squad(), "alpaca": alpaca(), "losses": losses(), "wikitext_rows": wikitext_rows(), "permutations": permutations()}
    with open(sys.argv[1], "w") as out:
        lines = ",\n".join(f'"{key}": {json.dumps(value, separators=(",", ":"))}' for key, value in fixture.items())
        out.write("{" + lines.replace('{"tokenizer"', '\n{"tokenizer"').replace('{"model"', '\n{"model"') + "}\n")


if __name__ == "__main__":
    main()
