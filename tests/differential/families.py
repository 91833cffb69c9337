"""Random config.json files of each family: every key that says what is computed, and many that say nothing.

`draw_config(family, random)` gives the keys as a file would hold them, absent ones included by their absence;
`PLAIN[family]` is the smallest ordinary model, which a failing configuration is shrunk towards. What this program
refuses on purpose is in REFUSABLE, by key. Read next: cases.py.
"""

FAMILIES = ("gpt2", "llama", "mistral", "qwen2", "bloom", "gpt_neox")
NAMES = {  # of the same thing in each group of families
    "gpt2": {"hidden": "n_embd", "layers": "n_layer", "heads": "n_head"},
    "bloom": {"hidden": "hidden_size", "layers": "n_layer", "heads": "n_head"},
}
COMMON_NAMES = {"hidden": "hidden_size", "layers": "num_hidden_layers", "heads": "num_attention_heads"}

PLAIN = {
    "gpt2": {"vocab_size": 32, "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 64},
    "bloom": {"vocab_size": 32, "hidden_size": 16, "n_layer": 1, "n_head": 2},
    "gpt_neox": {"vocab_size": 32, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
                 "intermediate_size": 24},
    **{family: {"vocab_size": 32, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
                "num_key_value_heads": 2, "intermediate_size": 24} for family in ("llama", "mistral", "qwen2")},
}  # fmt: skip

ACTIVATIONS = ["gelu_new", "gelu_pytorch_tanh", "gelu_python_tanh", "gelu_accurate", "gelu_fast", "gelu", "gelu_python",
               "gelu_10", "quick_gelu", "silu", "swish", "relu", "relu2", "relu6", "leaky_relu", "tanh", "sigmoid",
               "mish", "laplace", "linear"]  # fmt: skip
EPSILONS = [1e-5, 1e-6, 1e-12, 1e-8, 1e-3, 0.1, 0.0]

# Keys that this program may refuse to compute, and when. A refusal of anything else is a failure.
REFUSABLE = {
    "rope_type": lambda c: not rope_types(c) <= {"default", "linear", "llama3"},
    "rope_scaling": lambda c: not rope_types(c) <= {"default", "linear", "llama3"} or contradicts_theta(c),
    "layer_types": lambda c: len(set(c.get("layer_types") or [])) > 1 or some_slide(c) or contradicts_window(c),
    "use_sliding_window": lambda c: some_slide(c),
    "max_window_layers": lambda c: some_slide(c),
    "sliding_window": lambda c: c.get("sliding_window") is not None and c["sliding_window"] <= 0,
    "window": lambda c: c.get("sliding_window") is not None and c["sliding_window"] <= 0,
    "pretraining_tp": lambda c: c.get("slow_but_exact") and c.get("pretraining_tp", 1) > 1,
    "slow_but_exact": lambda c: c.get("slow_but_exact") and c.get("pretraining_tp", 1) > 1,
    "num_attention_heads": lambda c: not c.get("head_dim")
    and c.get("hidden_size", 4096) % c.get("num_attention_heads", 32) != 0,
    "head_dim": lambda c: c["model_type"] == "gpt_neox" and (rotated_channels(c) % 2 == 1 or rotated_channels(c) == 0),
    "rope_theta": lambda c: c["model_type"] == "gpt_neox" and "rotary_emb_base" not in c,  # of GPT-NeoX, where transformers overwrites it
    "partial_rotary_factor": lambda c: c["model_type"] == "gpt_neox" and "rotary_pct" not in c,
    "add_cross_attention": lambda c: True,
}


def rope_types(config):
    """By both names that the key has had; which one counts differs between families."""
    scaling = config.get("rope_scaling") or {}
    return {scaling[key] for key in ("type", "rope_type") if key in scaling}


def contradicts_theta(config):
    """transformers takes the one outside."""
    theta = config.get("rotary_emb_base" if config["model_type"] == "gpt_neox" else "rope_theta", 10000.0)
    return (config.get("rope_scaling") or {}).get("rope_theta", theta) != theta


def some_slide(config):
    """Qwen2's window in some of the layers; a saved file says it by layer types."""
    some = 0 < config.get("max_window_layers", 28) < config.get("num_hidden_layers", 32)
    return some and config.get("use_sliding_window", False) and config.get("sliding_window", 4096) is not None


def contradicts_window(config):
    has_window = config.get("sliding_window", 4096) is not None
    types = config.get("layer_types") or []
    return config["model_type"] == "mistral" and has_window != ("sliding_attention" in types)


def rotated_channels(config):
    head = config.get("hidden_size", 6144) // config.get("num_attention_heads", 64)
    return int(head * config.get("rotary_pct", 0.25))


def maybe(random, probability, config, key, draw):
    """Sets the key with that probability; else it stays absent."""
    if random.random() < probability:
        config[key] = draw()


def draw_sizes(random, config, family, head_widths):
    names = NAMES.get(family, COMMON_NAMES)
    heads = random.choice([1, 2, 3, 4, 5, 6, 8])
    width = random.choice(head_widths)
    heads = heads if heads * width > 2 else 3  # the norm of one or two channels has no gradient but rounding
    config["vocab_size"] = random.choice([17, 31, 32, 61, 64, 97, 127, 131])
    config[names["hidden"]] = heads * width
    config[names["heads"]] = heads
    config[names["layers"]] = random.choice([1, 1, 2, 2, 3])


def draw_tokens(random, config):
    """Ids with a meaning: they change nothing that is compared but a padding row's gradient (Llama's family)."""
    last = config.get("vocab_size", 32000) - 1
    draw_id = lambda: random.choice([0, 1, 2, last, None])  # noqa: E731
    maybe(random, 0.3, config, "bos_token_id", draw_id)
    maybe(random, 0.3, config, "eos_token_id", lambda: random.choice([draw_id(), [1, 2]]))
    maybe(random, 0.3, config, "pad_token_id", lambda: random.choice([0, 3, last, None, -1]))


def draw_no_effect(random, config):
    maybe(random, 0.2, config, "use_cache", lambda: random.random() < 0.5)
    maybe(random, 0.2, config, "initializer_range", lambda: random.choice([0.01, 0.02, 0.5]))
    maybe(random, 0.2, config, "architectures", lambda: None)
    maybe(random, 0.2, config, "transformers_version", lambda: random.choice(["4.20.0", "4.57.1", "5.0.0"]))
    maybe(random, 0.2, config, random.choice(["torch_dtype", "dtype"]), lambda: random.choice(["float32", "bfloat16"]))
    maybe(random, 0.1, config, "_name_or_path", lambda: "a/model")


def draw_gpt2(random):
    config = {}
    draw_sizes(random, config, "gpt2", [1, 3, 4, 5, 7, 8, 12, 16])
    maybe(random, 0.9, config, "n_positions", lambda: random.choice([40, 48, 64, 1024]))
    maybe(random, 0.5, config, "n_inner", lambda: random.choice([None, 7, 24, 33, 64]))
    maybe(random, 0.5, config, "activation_function", lambda: random.choice(ACTIVATIONS))
    maybe(random, 0.4, config, "layer_norm_epsilon", lambda: random.choice(EPSILONS))
    maybe(random, 0.3, config, "scale_attn_weights", lambda: random.random() < 0.5)
    maybe(random, 0.3, config, "scale_attn_by_inverse_layer_idx", lambda: random.random() < 0.5)
    maybe(random, 0.2, config, "reorder_and_upcast_attn", lambda: random.random() < 0.5)
    maybe(random, 0.3, config, "tie_word_embeddings", lambda: random.random() < 0.5)
    for key in ("resid_pdrop", "embd_pdrop", "attn_pdrop"):
        maybe(random, 0.3, config, key, lambda: random.choice([0.0, 0.1]))
    maybe(random, 0.2, config, "n_ctx", lambda: 1024)
    maybe(random, 0.1, config, "summary_type", lambda: "cls_index")
    maybe(random, 0.02, config, "add_cross_attention", lambda: True)
    spellings = {"n_embd": "hidden_size", "n_layer": "num_hidden_layers", "n_head": "num_attention_heads",
                 "n_positions": "max_position_embeddings"}  # fmt: skip
    for key, other in spellings.items():
        if key in config and random.random() < 0.1:
            config[other] = config.pop(key)
    return config


def draw_bloom(random):
    config = {}
    draw_sizes(random, config, "bloom", [1, 2, 3, 4, 5, 7, 8, 12])
    if random.random() < 0.1:
        config["n_embed"] = config.pop("hidden_size")
    maybe(random, 0.4, config, "layer_norm_epsilon", lambda: random.choice(EPSILONS))
    maybe(random, 0.5, config, "apply_residual_connection_post_layernorm", lambda: random.random() < 0.6)
    maybe(random, 0.3, config, "tie_word_embeddings", lambda: random.random() < 0.5)
    maybe(random, 0.3, config, "hidden_dropout", lambda: random.choice([0.0, 0.1]))
    maybe(random, 0.3, config, "attention_dropout", lambda: random.choice([0.0, 0.1]))
    maybe(random, 0.3, config, "pretraining_tp", lambda: random.choice([1, 2]))
    maybe(random, 0.2, config, "slow_but_exact", lambda: random.random() < 0.5)
    maybe(random, 0.2, config, "seq_length", lambda: random.choice([4, 2048]))
    maybe(random, 0.1, config, "n_inner", lambda: None)
    for key, other in {"n_layer": "num_hidden_layers", "n_head": "num_attention_heads"}.items():
        if random.random() < 0.15:
            config[other] = config.pop(key)
    return config


def draw_gpt_neox(random):
    config = {}
    draw_sizes(random, config, "gpt_neox", [2, 4, 6, 8, 8, 12, 16])
    config["intermediate_size"] = random.choice([5, 16, 33, 64])
    maybe(random, 0.7, config, "rotary_pct", lambda: random.choice([0.25, 0.5, 1.0, 0.3, 0.75]))
    if rotated_channels(config) % 2 or not rotated_channels(config):  # mostly refused: seldom
        maybe(random, 0.9, config, "rotary_pct", lambda: random.choice([0.5, 1.0]))
    maybe(random, 0.4, config, "rotary_emb_base", lambda: random.choice([10000, 500.0, 1000000]))
    maybe(random, 0.4, config, "hidden_act", lambda: random.choice(ACTIVATIONS))
    maybe(random, 0.4, config, "layer_norm_eps", lambda: random.choice(EPSILONS))
    maybe(random, 0.6, config, "use_parallel_residual", lambda: random.random() < 0.5)
    maybe(random, 0.3, config, "attention_bias", lambda: random.random() < 0.5)
    maybe(random, 0.4, config, "tie_word_embeddings", lambda: random.random() < 0.5)
    maybe(random, 0.5, config, "max_position_embeddings", lambda: random.choice([4, 64, 2048]))
    maybe(random, 0.3, config, "hidden_dropout", lambda: random.choice([0.0, 0.1]))
    maybe(random, 0.3, config, "attention_dropout", lambda: random.choice([0.0, 0.1]))
    theta = config.get("rotary_emb_base", 10000.0)
    maybe(random, 0.3, config, "rope_scaling", lambda: draw_rope_scaling(random, theta))
    maybe(random, 0.05, config, "rope_theta", lambda: 300.0)
    maybe(random, 0.05, config, "partial_rotary_factor", lambda: 0.5)
    return config


def draw_llama_like(random, family):
    config = {}
    width = random.choice([2, 4, 6, 8, 10, 16])
    draw_sizes(random, config, family, [width])
    heads = config["num_attention_heads"]
    config["num_key_value_heads"] = random.choice([n for n in range(1, heads + 1) if heads % n == 0] + [None])
    if heads == 8 and random.random() < 0.5 or config["num_key_value_heads"] == heads and family == "llama":
        del config["num_key_value_heads"]  # 8 heads: also Mistral's default
    config["intermediate_size"] = random.choice([5, 16, 33, 64])
    if random.random() < 0.3:
        config["head_dim"] = random.choice([2, 4, 6, 14, None])
    if config.get("head_dim") and random.random() < 0.5:
        config["hidden_size"] += random.choice([1, 3, 7])  # no multiple of the heads
    maybe(random, 0.3, config, "hidden_act", lambda: random.choice(ACTIVATIONS))
    maybe(random, 0.4, config, "rms_norm_eps", lambda: random.choice(EPSILONS))
    maybe(random, 0.4, config, "rope_theta", lambda: random.choice([10000.0, 500, 1000000.0, 1.5]))
    theta = config.get("rope_theta", 10000.0)
    maybe(random, 0.4, config, "rope_scaling", lambda: draw_rope_scaling(random, theta))
    maybe(random, 0.4, config, "tie_word_embeddings", lambda: random.random() < 0.6)
    maybe(random, 0.3, config, "attention_dropout", lambda: random.choice([0.0, 0.1]))
    maybe(random, 0.4, config, "max_position_embeddings", lambda: random.choice([4, 64, 4096]))
    maybe(random, 0.1, config, "pretraining_tp", lambda: random.choice([1, 2]))
    if random.random() < 0.05:
        config["num_attention_heads"] = config["num_key_value_heads"] = 3
    return config


def draw_llama(random):
    config = draw_llama_like(random, "llama")
    maybe(random, 0.4, config, "attention_bias", lambda: random.random() < 0.7)
    maybe(random, 0.4, config, "mlp_bias", lambda: random.random() < 0.7)
    return config


def draw_mistral(random):
    config = draw_llama_like(random, "mistral")
    maybe(random, 0.7, config, "sliding_window", lambda: random.choice([1, 2, 3, 5, 8, 100, None, 0, -1]))
    if random.random() < 0.2:  # transformers then takes the class Ministral, which has no default of head_dim
        draw_layer_types(random, config)
        config["head_dim"] = config.get("head_dim") or 4
    return config


def draw_qwen2(random):
    config = draw_llama_like(random, "qwen2")
    layers = config["num_hidden_layers"]
    maybe(random, 0.5, config, "use_sliding_window", lambda: random.random() < 0.7)
    maybe(random, 0.5, config, "sliding_window", lambda: random.choice([1, 2, 4, 8, 100, None]))
    maybe(random, 0.5, config, "max_window_layers", lambda: random.choice([0, 0, 0, 1, layers, 28]))
    if random.random() < 0.2:
        draw_layer_types(random, config)
    return config


def draw_layer_types(random, config):
    kinds = ["full_attention", "sliding_attention"]
    one = random.choice(kinds)
    layers = range(config["num_hidden_layers"])
    config["layer_types"] = [random.choice(kinds) if random.random() < 0.1 else one for _ in layers]


def draw_rope_scaling(random, theta):
    kind = random.choice(["linear"] * 3 + ["llama3"] * 3 + ["default", "dynamic", "yarn", None])
    if kind is None:
        return None
    scaling = {random.choice(["rope_type", "rope_type", "type"]): kind}
    if random.random() < 0.1:
        scaling = {"type": kind, "rope_type": kind}
        scaling[random.choice(["type", "rope_type"])] = random.choice(["default", "linear"])
    if kind != "default" or "linear" in scaling.values():
        scaling["factor"] = random.choice([1.0, 2.0, 4, 8.0, 2.5, 32.0])
    if kind == "llama3":
        scaling["low_freq_factor"] = random.choice([1.0, 1, 0.5])
        scaling["high_freq_factor"] = random.choice([4.0, 4, 1.5, 30.0])
        scaling["original_max_position_embeddings"] = random.choice([8, 32, 64, 1000, 8192])
    maybe(random, 0.1, scaling, "rope_theta", lambda: random.choice([theta, 300.0]))
    return scaling


DRAW = {"gpt2": draw_gpt2, "llama": draw_llama, "mistral": draw_mistral, "qwen2": draw_qwen2, "bloom": draw_bloom,
        "gpt_neox": draw_gpt_neox}  # fmt: skip

# What a file may leave out, and what has to be small then for the model to stay small.
LEFT_OUT = {
    "gpt2": [("n_embd", {"n_layer": 1, "n_head": 12, "n_inner": 8}), ("n_layer", {}), ("n_head", {"n_embd": 36}),
             ("n_positions", {}), ("vocab_size", {"n_embd": 12, "n_head": 3})],
    "bloom": [("hidden_size", {"n_head": 4}), ("n_layer", {}), ("n_head", {"hidden_size": 24})],
    "gpt_neox": [("num_hidden_layers", {}), ("vocab_size", {"hidden_size": 12, "num_attention_heads": 3}),
                 ("num_attention_heads", {"hidden_size": 512, "intermediate_size": 16, "num_hidden_layers": 1}),
                 ("intermediate_size", {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1})],
    **{family: [("hidden_size", {"head_dim": 4, "num_attention_heads": 2, "num_key_value_heads": 1,
                                 "intermediate_size": 6, "num_hidden_layers": 1}),
                ("num_hidden_layers", {}), ("num_attention_heads", {"hidden_size": 64, "num_key_value_heads": 8}),
                ("vocab_size", {"hidden_size": 12, "num_attention_heads": 3, "num_key_value_heads": 1}),
                ("intermediate_size", {"hidden_size": 8, "num_attention_heads": 2, "num_key_value_heads": 2})]
       for family in ("llama", "mistral", "qwen2")},
}  # fmt: skip


def draw_config(family, random):
    config = DRAW[family](random)
    if random.random() < 0.08:
        key, small = random.choice(LEFT_OUT[family])
        config = {**PLAIN[family], **{k: v for k, v in config.items() if k not in PLAIN[family]}, **small}
        config.pop("layer_types", None)
        if "head_dim" not in small:
            config.pop("head_dim", None)
        for other in (key, "n_embed", *COMMON_NAMES.values()):
            if other == key or other not in PLAIN[family] and other not in small:
                config.pop(other, None)
    draw_tokens(random, config)
    draw_no_effect(random, config)
    return {"model_type": family, **config}
