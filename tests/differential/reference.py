"""What transformers and PEFT compute for a case, as a folder that `fsdp verify` reads.

The folder's files are described in the repository's README ("Check it against another implementation"). Read next:
program.py (what this program makes of it).
"""

import copy
import json
import shutil
from pathlib import Path
from random import Random

import peft
import torch
from float64 import NoNarrowFloats, true_float64
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

STEPS = 5
IGNORED = -100
BETAS, EPS, WEIGHT_DECAY, MAX_NORM = (0.9, 0.95), 1e-8, 0.1, 1.0
MARGIN = 1e-8  # between the two largest logits: less decides nothing
STORED = {"F64": torch.float64, "F32": torch.float32, "BF16": torch.bfloat16}


class NotComputed(Exception):
    """transformers or PEFT refuses the case, or fails on it."""


def write(case, folder):
    """Fills the folder; NotComputed where there is nothing to compare with. Returns facts for the judgement."""
    shutil.rmtree(folder, ignore_errors=True)
    base = folder / "base" if "adapter" in case else folder
    base.mkdir(parents=True)
    generator = torch.Generator().manual_seed(case["seed"])
    with true_float64():
        model = tried(build, case, base, generator)
        batches = [draw_batch(case, model.config, Random(f"{case['seed']} {i}")) for i in range(STEPS + 1)]
        save_model(case, model, folder, base)
        tensors, loss = tried(first_pass, model, batches[0])
        if not torch.isfinite(tensors["logits"]).all() or loss != loss:
            raise NotComputed("its results are not finite")
        tensors |= merged(model) if "adapter" in case else {}
        if case["run"]["prompts"]:
            generate(case, model, folder)
        steps, final = train(model, batches[1:])
    save(tensors, folder / "reference.safetensors")
    stacked = {f"batch.{key}": torch.stack([b[key] for b in batches[1:]]) for key in batches[0]}
    save({**stacked, **{f"final.{n}": t for n, t in final.items()}}, folder / "trajectory.safetensors")
    reference = {"loss_f64": loss, "trajectory": {
        "optimizer": f"torch.optim.AdamW, betas {BETAS}, eps {EPS}, weight_decay {WEIGHT_DECAY} if ndim >= 2 else 0",
        "clip": f"gradients *= min(1, {MAX_NORM} / (norm + 1e-6)), norm = l2 norm of all gradients together",
        "steps": steps}}  # fmt: skip
    (folder / "reference.json").write_text(json.dumps(reference, ensure_ascii=False, separators=(",", ":")))
    return {name[5:]: t.abs().max().item() for name, t in tensors.items() if name.startswith("grad.")}


def tried(compute, *arguments):
    """transformers and PEFT raise errors of any kind for what they do not compute."""
    try:
        return compute(*arguments)
    except Exception as error:
        raise NotComputed(f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}") from error


# ---------------------------------------------------------------- the model and its files


def build(case, base, generator):
    (base / "config.json").write_text(json.dumps(case["config"], indent=1))
    config = AutoConfig.from_pretrained(base)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float64)
    fill(model, case, generator)
    if "adapter" in case:
        model.name_or_path = "base"
        arguments = {"fan_in_fan_out": case["family"] == "gpt2", **copy.deepcopy(case["adapter"])}
        model = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **arguments))
        fill_adapter(model, case, generator)
    mask_once(model)
    return without_dropout(model.train())


@torch.no_grad()
def fill(model, case, generator):
    """Far from the usual initialisation: every bias, norm weight and position matters."""
    stored = STORED[case["run"]["weights"]]
    # Wide layers would make attention choose one key alone: gradients of nothing but rounding.
    scale = case["run"]["scale"] * min(1, 4 / model.config.hidden_size**0.5)
    for name, p in model.named_parameters():
        noise = torch.randn(p.shape, generator=generator, dtype=torch.float64)
        centre = 1 if p.ndim == 1 and not name.endswith("bias") else 0
        p.copy_((centre + (scale if p.ndim > 1 else 0.1) * noise).to(stored))


@torch.no_grad()
def fill_adapter(model, case, generator):
    stored = STORED[case["run"]["weights"]]
    for name, p in model.named_parameters():
        if "lora_" in name or p.requires_grad:
            p.copy_((0.3 * torch.randn(p.shape, generator=generator, dtype=torch.float64)).to(stored))


def mask_once(model):
    """GPT-2 hides later keys twice, so that a position that sees padding alone would mix other keys than elsewhere.

    What such a position computes has no meaning and depends on the kind of attention; nothing else changes."""
    for module in model.modules():
        if type(module).__name__ == "GPT2Attention":
            module.bias.fill_(True)


def without_dropout(model):
    """In training mode, where BLOOM's own gradient formula is used, with every probability zero."""
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        for name in ("attention_dropout", "hidden_dropout"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
    return model


def save_model(case, model, folder, base):
    inner = model
    if "adapter" in case:
        model.save_pretrained(folder, save_embedding_layers=False)
        inner = model.get_base_model()
    names, seen, state = {}, set(), {}
    for name, p in inner.named_parameters(remove_duplicate=True):
        if "lora_" in name or id(p) in seen:
            continue
        seen.add(id(p))
        names[name] = name.replace(".base_layer", "").replace("modules_to_save.default.", "")
        state[names[name]] = p.detach().to(STORED[case["run"]["weights"]])
    save_in_files(state, base, case["run"]["files"])
    if case["run"]["form"] == "saved" and inner.config.model_type == case["family"]:  # Ministral is another
        inner.config.save_pretrained(base)


def save_in_files(state, base, files):
    if files == 1:
        return save(state, base / "model.safetensors")
    where = {name: f"model-{i % files + 1:05}-of-{files:05}.safetensors" for i, name in enumerate(state)}
    for file in set(where.values()):
        save({name: t for name, t in state.items() if where[name] == file}, base / file)
    index = {"metadata": {"total_size": sum(t.nbytes for t in state.values())}, "weight_map": where}
    (base / "model.safetensors.index.json").write_text(json.dumps(index))


def save(tensors, path):
    save_file({name: t.detach().contiguous().clone() for name, t in tensors.items()}, path, metadata={"format": "pt"})


# ---------------------------------------------------------------- batches


def draw_batch(case, config, random):
    run = case["run"]
    while True:
        rows = [draw_row(run, config, random) for _ in range(run["rows"])]
        batch = {key: torch.tensor([row[key] for row in rows]) for key in rows[0]}
        if (batch["labels"][:, 1:] != IGNORED).any():
            return batch


def draw_row(run, config, random):
    length, window = run["length"], getattr(config, "sliding_window", None) or 0
    window = window if window > 0 else length
    ids = [random.randrange(config.vocab_size) for _ in range(length)]
    mask, pad = [1] * length, random.randrange(length)
    if run["padding"] == "left":
        mask = [int(t >= pad) for t in range(length)]
    elif run["padding"] == "right":
        mask = [int(t <= pad) for t in range(length)]
    elif run["padding"] == "holes":
        mask = [int(random.random() < 0.7) for t in range(length)]
        mask[random.randrange(length)] = 1
    # A position that sees nothing computes nothing of meaning: nothing may be predicted from it.
    sees = [any(mask[max(0, t - window + 1) : t + 1]) for t in range(length)]
    labels = [
        token if mask[t] and (t == 0 or sees[t - 1]) and random.random() < 0.8 else IGNORED
        for t, token in enumerate(ids)
    ]
    row = {"input_ids": ids, "labels": labels}
    return row if run["padding"] == "none" else {**row, "attention_mask": mask}


# ---------------------------------------------------------------- results


def trainable(model):
    """Parameters by the name they have in the saved file; PEFT inserts its adapter's name, 'default', in memory."""
    return {name.replace(".default", ""): p for name, p in model.named_parameters() if p.requires_grad}


def evaluate(model, batch):
    model.zero_grad()
    out = model(**batch, use_cache=False)
    out.loss.backward()
    return out


def first_pass(model, batch):
    with NoNarrowFloats():
        out = evaluate(model, batch)
    grads = {f"grad.{name}": p.grad.clone() for name, p in trainable(model).items()}
    return {**batch, "logits": out.logits.detach(), **grads}, out.loss.item()


def train(model, batches):
    parameters = list(trainable(model).values())
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": WEIGHT_DECAY},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW([g for g in groups if g["params"]], betas=BETAS, eps=EPS)
    steps = []
    for step, batch in enumerate(batches, start=1):
        loss = evaluate(model, batch).loss.item()
        norm = torch.nn.utils.clip_grad_norm_(parameters, MAX_NORM)
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 / step
        optimizer.step()
        steps.append({"step": step, "lr": 3e-3 / step, "loss_f64": loss, "grad_norm_f64": norm.item()})
    return steps, {name: p.detach() for name, p in trainable(model).items()}


def merged(model):
    """The weights of all adapted layers after merging, by their names in the base's file."""
    adapted = [name for name in trainable(model) if ".lora_A" in name]
    layers = {name.removeprefix("base_model.model.").split(".lora_A")[0] for name in adapted}
    alone = copy.deepcopy(model).merge_and_unload()
    return {f"merged.{name}.weight": alone.get_parameter(f"{name}.weight").detach() for name in layers}


def greedy(model, ids, mask, tokens):
    # Without its cache, which keeps all keys where the window is 1, and fails on others.
    out = model.generate(
        input_ids=ids, attention_mask=mask, max_new_tokens=tokens, do_sample=False, use_cache=False, pad_token_id=0,
        return_dict_in_generate=True, output_logits=True,
    )  # fmt: skip
    top = torch.stack(out.logits, dim=1).topk(2).values
    return out.sequences[:, ids.shape[1] :].tolist(), (top[..., 0] - top[..., 1]).min().item()


def generate(case, model, folder):
    """Prompts continued together, padded in front, and each alone; nothing where two tokens are equally likely."""
    model.generation_config.eos_token_id = None
    random, tokens = Random(f"{case['seed']} prompts"), case["run"]["new_tokens"]
    lengths = case["run"]["prompts"]
    prompts = [[random.randrange(model.config.vocab_size) for _ in range(n)] for n in lengths]
    ids = torch.tensor([[0] * (max(lengths) - len(p)) + p for p in prompts])
    mask = torch.tensor([[0] * (max(lengths) - len(p)) + [1] * len(p) for p in prompts])
    new, margin = greedy(model, ids, mask, tokens)
    alone = [greedy(model, torch.tensor([p]), torch.ones(1, len(p), dtype=torch.int64), tokens) for p in prompts]
    if min(margin, *(m for _, m in alone)) < MARGIN:
        return
    texts = {"prompts": prompts, "batched": {"new_ids": new}, "alone": [{"new_ids": ids} for (ids,), _ in alone]}
    (Path(folder) / "generation.json").write_text(json.dumps(texts))
