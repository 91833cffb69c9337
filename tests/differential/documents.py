"""Writes tests/fixtures/models/{llama,mistral,gpt2}_documents: rows of documents that do not see each other, in true float64.

    python3 tests/differential/documents.py tests/fixtures/models

The reference has explicit positions and a 4-D mask. It is held against each document alone, and against transformers'
own packing: position_ids without a mask, whose sdpa finds the documents by itself.
"""

import json
import pathlib
import sys

import torch
import transformers
from float64 import true_float64
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

# Lengths of documents in a row; the last one is padding, of one document, or as TRL numbers it: of single tokens.
ROWS = [[3, 7, 2, 4], [1, 9, 3, 1, 1, 1], [16]]
LENGTH, VOCABULARY = 16, 41
LLAMA = {"hidden_size": 24, "intermediate_size": 20, "num_attention_heads": 3, "num_key_value_heads": 1, "num_hidden_layers": 2, "max_position_embeddings": 64}
CASES = {
    "llama_documents": ("llama", LLAMA, "RoPE"),
    "mistral_documents": ("mistral", {**LLAMA, "sliding_window": 4}, "a window of 4: shorter than some documents, longer than others"),
    "gpt2_documents": ("gpt2", {"n_embd": 24, "n_head": 3, "n_layer": 2, "n_positions": 24, "n_inner": 32, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}, "learned positions"),
}  # fmt: skip


def build(config, state, attention, dtype=torch.float64):
    model = AutoModelForCausalLM.from_config(config, attn_implementation=attention, dtype=dtype)
    model.load_state_dict({name: t.to(dtype) for name, t in state.items()})
    return model.train()


def batch_of(generator):
    ids = torch.randint(3, VOCABULARY, (len(ROWS), LENGTH), generator=generator)
    labels = ids.masked_fill(torch.rand(ids.shape, generator=generator) < 0.2, -100)
    document = torch.stack([torch.repeat_interleave(torch.arange(len(row)), torch.tensor(row)) for row in ROWS])
    positions = torch.stack([torch.cat([torch.arange(n) for n in row]) for row in ROWS])
    labels[positions == 0] = -100
    for row, padding in ((0, 4), (1, 3)):
        ids[row, -padding:] = 0
        labels[row, -padding:] = -100
    return ids, labels, positions, document


def block_mask(document, window, dtype):
    query, key = torch.arange(LENGTH)[:, None], torch.arange(LENGTH)[None]
    seen = (document[:, :, None] == document[:, None, :]) & (key <= query) & (query - key < (window or LENGTH))
    return torch.zeros(seen.shape, dtype=dtype).masked_fill(~seen, torch.finfo(dtype).min)[:, None]


def evaluate(model, **inputs):
    out = model(**inputs, use_cache=False)
    out.loss.backward()
    return {"loss": out.loss.detach(), "logits": out.logits.detach(), **{f"grad.{name}": p.grad for name, p in model.named_parameters()}}


def of_documents_alone(config, state, ids, labels):
    """The sum over the documents, each a batch of its own, divided by the labels of all."""
    model, total, logits, counted = build(config, state, "eager"), 0, [], (labels != -100).sum()
    for row, lengths in enumerate(ROWS):
        for own, wanted in zip(ids[row].split(lengths), labels[row].split(lengths)):
            out = model(input_ids=own[None], use_cache=False)
            logits.append(out.logits.detach()[0])
            total = total + torch.nn.functional.cross_entropy(out.logits[0, :-1], wanted[1:], reduction="sum") / counted
    total.backward()
    return {"loss": total.detach(), "logits": torch.cat(logits).view(len(ROWS), LENGTH, -1), **{f"grad.{name}": p.grad for name, p in model.named_parameters()}}


def largest_difference(got, expected):
    largest = max(t.abs().max().item() for name, t in expected.items() if name.startswith("grad."))
    own = {name: largest if name.startswith("grad.") else t.abs().max().item() for name, t in expected.items()}
    worst = max((got[name] - t).abs().max().item() / own[name] for name, t in expected.items())
    assert worst < 1e-12, worst
    return worst


def write(folder, model_type, options, about):
    generator = torch.Generator().manual_seed(58)
    config = AutoConfig.for_model(model_type, vocab_size=VOCABULARY, bos_token_id=1, eos_token_id=2, **options)
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():  # no logit near zero; every bias and norm matters
        for p in model.parameters():
            p.copy_((0.3 if p.ndim > 1 else 0.1) * torch.randn(p.shape, generator=generator) + (p.ndim == 1 and p.mean() > 0.5))
    state, window = model.state_dict(), getattr(config, "sliding_window", None)
    ids, labels, positions, document = batch_of(generator)
    inputs = {"input_ids": ids, "labels": labels, "position_ids": positions}
    with true_float64():
        expected = evaluate(build(config, state, "eager"), **inputs, attention_mask=block_mask(document, window, torch.float64))
        alone = largest_difference(of_documents_alone(config, state, ids, labels), expected)
        packed = {attention: largest_difference(evaluate(build(config, state, attention), **inputs), expected) for attention in ("eager", "sdpa")}
    narrow = build(config, state, "eager", torch.bfloat16)(**inputs, attention_mask=block_mask(document, window, torch.bfloat16)).logits.detach()
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink()
    save_file({**inputs, **{name: t.contiguous() for name, t in expected.items() if name != "loss"}}, folder / "reference.safetensors")
    reference = {"about": f"rows of documents that do not see each other: {about}", "rows": ROWS, "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
                 "label_tokens": int((labels != -100).sum()), "loss_f64": expected["loss"].item(),
                 "max_relative_difference_f64": {"each document alone": alone, "position_ids without a mask, eager": packed["eager"], "position_ids without a mask, sdpa": packed["sdpa"]},
                 "max_relative_difference_bf16_f64": {"logits": ((narrow.double() - expected["logits"]).abs().max() / expected["logits"].abs().max()).item()}}  # fmt: skip
    (folder / "reference.json").write_text(json.dumps(reference, indent=1) + "\n")
    print(folder.name, sum(f.stat().st_size for f in folder.iterdir()), "bytes", reference["max_relative_difference_f64"])


def main():
    for name, case in CASES.items():
        write(pathlib.Path(sys.argv[1]) / name, *case)


if __name__ == "__main__":
    main()
