"""A training step in PyTorch, the peer that `fsdp bench step` is set beside: the same work, measured in the
same run. Called by tools/bench/bench_peer.sh and tools/gpu/second.sh; needs torch and transformers.

    python3 tools/bench/torch_step.py --model gpt2-124m --batch 4 --seq 64 --threads 2 [--compile]
    python3 tools/bench/torch_step.py --model gpt2-124m --device cuda --batch 32 --seq 1024 --dtype bf16 --master
    torchrun --nproc-per-node 2 tools/bench/torch_step.py --fsdp --batch 2 --seq 64 --threads 1

Forward, mean cross-entropy, backward, clipping by the global norm, AdamW; random tokens, no dropout; --batch is of
each rank; several, as 64,32, are measured one after the other, and one that does not fit is left out. bf16 is autocast over f32 parameters (what `fsdp` does) on the CPU and with --master; without, on a GPU,
parameters and optimizer state are bf16. Prints a line of JSON: ms a step, tokens/s, memory.
"""
import argparse
import contextlib
import json
import os
import resource
import statistics
import sys
import time

import torch
import torch.distributed as dist
from transformers import AutoModelForCausalLM, GPT2Config, Qwen2Config


def gpt2(layers, heads, width):
    return GPT2Config(n_layer=layers, n_head=heads, n_embd=width, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)


def qwen2(layers, heads, width, ffn):
    return Qwen2Config(vocab_size=151936, hidden_size=width, intermediate_size=ffn, num_hidden_layers=layers,
                       num_attention_heads=heads, num_key_value_heads=2, tie_word_embeddings=True)


MODELS = {
    "gpt2-124m": lambda: gpt2(12, 12, 768),
    "gpt2-1558m": lambda: gpt2(48, 25, 1600),
    "qwen2.5-0.5b": lambda: qwen2(24, 14, 896, 4864),
    "qwen2.5-1.5b": lambda: qwen2(28, 12, 1536, 8960),
}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="gpt2-124m", choices=MODELS)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--dtype", default="f32", choices=["f32", "bf16"])
    parser.add_argument("--batch", default=[4], type=lambda text: [int(batch) for batch in text.split(",")])
    for name, value in dict(seq=64, threads=2, steps=6).items():
        parser.add_argument("--" + name, type=int, default=value)
    for name in ("compile", "fsdp", "ddp", "master"):
        parser.add_argument("--" + name, action="store_true")
    return parser.parse_args()


def build(a):
    config = MODELS[a.model]()
    config.use_cache = False
    with torch.device(a.device):
        model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").train()
    if a.dtype == "bf16" and a.device == "cuda" and not a.master and not a.fsdp:
        model = model.to(torch.bfloat16)
    if a.fsdp:
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
        low = torch.bfloat16 if a.dtype == "bf16" else None
        policy = MixedPrecisionPolicy(param_dtype=low, reduce_dtype=torch.float32)
        for block in model.transformer.h if hasattr(model, "transformer") else model.model.layers:
            fully_shard(block, mp_policy=policy)
        fully_shard(model, mp_policy=policy)
    elif a.ddp:
        model = torch.nn.parallel.DistributedDataParallel(model)
    return model, config.vocab_size


def measure(a, model, vocabulary, batch):
    """Seconds of every timed step, and the last loss."""
    torch._dynamo.reset()  # no dynamic shapes for the second batch
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    forward = torch.compile(model) if a.compile else model
    autocast = a.dtype == "bf16" and not a.fsdp and (a.master or a.device == "cpu")
    context = torch.autocast(a.device, torch.bfloat16) if autocast else contextlib.nullcontext()
    tokens = torch.randint(0, vocabulary, (batch, a.seq), device=a.device)
    wait = torch.cuda.synchronize if a.device == "cuda" else lambda: None
    warm_up = 5 if a.device == "cuda" else 2
    seconds = []
    for _ in range(warm_up + a.steps):
        wait()
        begin = time.perf_counter()
        with context:
            loss = forward(input_ids=tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        wait()
        seconds.append(time.perf_counter() - begin)
    return seconds[warm_up:], loss.item()


def report(a, world, batch, seconds, loss):
    cuda = a.device == "cuda"
    peak = torch.cuda.max_memory_allocated() if cuda else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps(dict(
        peer="torch " + torch.__version__, model=a.model, device=a.device, dtype=a.dtype, batch=batch, seq=a.seq,
        world=world, mode="fsdp2" if a.fsdp else "ddp" if a.ddp else "single", compile=a.compile, master=a.master,
        threads=a.threads, ms_min=round(1e3 * min(seconds), 2),
        ms_median=round(1e3 * statistics.median(seconds), 2),
        tokens_per_s=round(world * batch * a.seq / min(seconds), 1), peak_gib=round(peak / 2**30, 3),
        loss=round(loss, 4))), flush=True)


def main():
    a = arguments()
    cuda = a.device == "cuda"
    world = int(os.environ.get("WORLD_SIZE", 1))
    if cuda:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
        torch.set_float32_matmul_precision("high")
    else:
        torch.set_num_threads(a.threads)
    if world > 1 or a.fsdp:
        dist.init_process_group("nccl" if cuda else "gloo")
    torch.manual_seed(0)
    model, vocabulary = build(a)
    for batch in a.batch:
        try:
            seconds, loss = measure(a, model, vocabulary, batch)
        except torch.OutOfMemoryError as error:
            print(f"{a.model}, batch {batch}: {error}", file=sys.stderr)
            continue
        finally:
            model.zero_grad(set_to_none=True)
        if not dist.is_initialized() or dist.get_rank() == 0:
            report(a, world, batch, seconds, loss)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
