#!/usr/bin/env python3
"""Losses and gradients of very small models, one for each way of computing that no folder of
tests/fixtures/models has: tests/fixtures/small_models.json, read by tests/models/small_models_test.cpp.
Element i of the t-th tensor, by name, is amplitude * sin(1 + 0.7 i + 1.3 t).
Usage: small_models.py tests/fixtures/small_models.json"""
import json
import sys

import torch
from float64 import true_float64
from transformers import AutoConfig, AutoModelForCausalLM

IDS = [1, 2, 4, 2, 0, 3]
GPT2 = {"model_type": "gpt2", "vocab_size": 5, "n_embd": 4, "n_layer": 2, "n_head": 2, "n_positions": 8, "n_inner": 6}
LLAMA = {"model_type": "llama", "vocab_size": 5, "hidden_size": 4, "num_hidden_layers": 2, "num_attention_heads": 2,
         "num_key_value_heads": 1, "intermediate_size": 6, "max_position_embeddings": 8}  # fmt: skip
NEOX = {"model_type": "gpt_neox", "vocab_size": 5, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
        "intermediate_size": 6, "max_position_embeddings": 8, "rotary_pct": 0.5}  # fmt: skip
QWEN2 = {**LLAMA, "model_type": "qwen2", "layer_types": ["full_attention"] * 2, "use_sliding_window": True,
         "sliding_window": 2, "max_window_layers": 0}  # fmt: skip
ACTIVATIONS = ["gelu_new", "gelu_fast", "gelu_pytorch_tanh", "gelu_python_tanh", "gelu_accurate", "gelu", "gelu_python",
               "gelu_10", "quick_gelu", "silu", "swish", "relu", "relu2", "relu6", "leaky_relu", "tanh", "sigmoid", "mish",
               "laplace", "linear"]  # fmt: skip
SCALING = {"type": "linear", "rope_type": "default", "factor": 3.0}


def cases():
    for name in ACTIVATIONS:
        yield {**GPT2, "activation_function": name}
        yield {**LLAMA, "hidden_act": name}
    for name in ("quick_gelu", "silu", "tanh", "relu2"):
        yield {**NEOX, "hidden_act": name}
    for weights in (True, False):
        for by_layer in (True, False):
            yield {**GPT2, "scale_attn_weights": weights, "scale_attn_by_inverse_layer_idx": by_layer}
    yield QWEN2
    yield {**QWEN2, "layer_types": ["sliding_attention"] * 2, "max_window_layers": 28}
    yield {**LLAMA, "rope_scaling": SCALING}
    yield {**LLAMA, "model_type": "mistral", "sliding_window": 3, "rope_scaling": SCALING}


def compute(keys, amplitude):
    config = AutoConfig.for_model(**json.loads(json.dumps(keys)))
    config._attn_implementation = "eager"
    for key in ("embd_pdrop", "attn_pdrop", "resid_pdrop"):
        if hasattr(config, key):
            setattr(config, key, 0.0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").double()
    parameters = dict(sorted(model.named_parameters()))
    with torch.no_grad():
        for t, parameter in enumerate(parameters.values()):
            i = torch.arange(parameter.numel(), dtype=torch.float64)
            parameter.copy_((amplitude * torch.sin(1 + 0.7 * i + 1.3 * t)).view(parameter.shape))
    ids = torch.tensor([IDS])
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    return {"config": keys, "amplitude": amplitude, "loss": loss.item(),
            "norms": [p.grad.norm().item() for p in parameters.values()]}  # fmt: skip


def main():
    with true_float64():
        results = [compute(keys, amplitude) for keys in cases() for amplitude in (0.5, 3.0)]
    with open(sys.argv[1], "w") as file:
        file.write("[\n" + ",\n".join(json.dumps(result) for result in results) + "\n]\n")


main()
