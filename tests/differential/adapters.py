"""Random LoRA adapters, as arguments of PEFT's LoraConfig. Read next: cases.py."""

GATED = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
PACKED = ["query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"]
LAYERS = {
    "gpt2": ["c_attn", "c_fc", "c_proj", "attn.c_proj", "mlp.c_proj"],
    "bloom": PACKED, "gpt_neox": PACKED, "llama": GATED, "mistral": GATED, "qwen2": GATED,
}  # fmt: skip
BLOCKS = {"gpt2": "h", "bloom": "h"}  # what the list of blocks is called; "layers" in the others

PLAIN = {"r": 2, "lora_alpha": 4}
# A refusal of anything else is a failure.
REFUSABLE = {
    "bias": lambda a: a.get("bias", "none") != "none",
    "use_dora": lambda a: a.get("use_dora"),
    "modules_to_save": lambda a: a.get("modules_to_save"),
}


def draw_adapter(family, random, layers):
    names = LAYERS[family]
    few = lambda: random.sample(names, random.randint(1, 3))  # noqa: E731
    adapter = {"r": random.choice([1, 2, 3, 4, 8]), "lora_alpha": random.choice([1, 2, 5, 8, 16])}

    def maybe(probability, key, draw):
        if random.random() < probability:
            adapter[key] = draw()

    targets = random.random()
    if targets < 0.5:
        adapter["target_modules"] = few()
    elif targets < 0.7:
        adapter["target_modules"] = "all-linear"
    elif targets < 0.85:
        adapter["target_modules"] = draw_pattern(family, random, few())
    maybe(0.4, "use_rslora", lambda: random.random() < 0.7)
    maybe(0.3, "lora_dropout", lambda: random.choice([0.0, 0.1]))
    maybe(0.3, "init_lora_weights", lambda: random.choice([True, False, "gaussian", "orthogonal"]))
    maybe(0.3, "rank_pattern", lambda: draw_by_name(family, random, layers, [1, 2, 5, 6]))
    maybe(0.3, "alpha_pattern", lambda: draw_by_name(family, random, layers, [1, 3, 10]))
    maybe(0.25, "exclude_modules", lambda: random.choice([few()[:1], draw_pattern(family, random, few())]))
    if isinstance(adapter.get("target_modules"), list):
        maybe(0.3, "layers_to_transform", lambda: random.choice([0, layers - 1, [0], [layers - 1, 0]]))
    if "layers_to_transform" in adapter:
        maybe(0.5, "layers_pattern", lambda: random.choice([BLOCKS.get(family, "layers"), None]))
    maybe(0.3, "fan_in_fan_out", lambda: family == "gpt2")
    maybe(0.02, "bias", lambda: random.choice(["all", "lora_only"]))
    maybe(0.02, "use_dora", lambda: True)
    maybe(0.02, "modules_to_save", lambda: ["lm_head"])
    if adapter.get("init_lora_weights") == "orthogonal":  # PEFT wants even ranks for it
        adapter["r"] = 4
        adapter.pop("rank_pattern", None)
    return adapter


def draw_pattern(family, random, names):
    """A regular expression that full names of layers match."""
    block = BLOCKS.get(family, "layers")
    choice = "|".join(name.replace(".", r"\.") for name in names)
    of_layers = random.choice(["", rf"{block}\.0\..*", rf"{block}\.[0-1]\..*\."])
    return rf".*\.{of_layers}({choice}){random.choice(['', '$'])}"


def draw_by_name(family, random, layers, values):
    """rank_pattern, alpha_pattern: how a name ends, or a regular expression of its end."""
    block = BLOCKS.get(family, "layers")
    keys = {}
    for name in random.sample(LAYERS[family], random.randint(1, 2)):
        layer = random.randrange(layers)
        key = random.choice([name, name, rf"{block}\.{layer}\..*{name}", rf"{block}.{layer}.*.{name}"])
        keys[key] = random.choice(values)
    return keys
