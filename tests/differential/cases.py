"""A case: what one seed draws, as plain data, and how a failing one is made smaller.

    {"seed", "family", "config": the keys of config.json, "run": batch, padding, files, ranks, ...,
     "adapter": arguments of LoraConfig, where there is one}

Everything follows from the seed. Read next: families.py, adapters.py (what is drawn), reference.py (what is computed).
"""

import copy
from random import Random

import adapters
import families

PLAIN_RUN = {"rows": 2, "length": 6, "padding": "none", "weights": "F32", "files": 1, "form": "raw", "ranks": 1,
             "strategy": "full_shard", "prompts": [], "new_tokens": 0, "round_trip": False, "scale": 0.3}  # fmt: skip


def draw(seed):
    random = Random(f"fsdp {seed}")
    family = families.FAMILIES[seed % len(families.FAMILIES)]
    case = {"seed": seed, "family": family, "config": families.draw_config(family, random), "run": draw_run(random)}
    if random.random() < 0.25:
        layers = next((case["config"][k] for k in ("n_layer", "num_hidden_layers") if k in case["config"]), 2)
        case["adapter"] = adapters.draw_adapter(family, random, layers)
    return case


def draw_run(random):
    prompts = random.random() < 0.5
    return {
        "rows": random.choice([1, 2, 3, 4]),
        "length": random.choice([2, 3, 5, 7, 11, 13, 16, 19]),
        "padding": random.choice(["none", "none", "left", "right", "holes"]),
        "weights": random.choice(["F32", "F32", "F64", "BF16"]),  # as stored
        "files": random.choice([1, 1, 3]),
        "form": random.choice(["raw", "raw", "saved"]),  # of config.json: as drawn, or as transformers saves it
        "ranks": random.choice([1, 1, 2, 2, 3]),
        "strategy": random.choice(["full_shard", "full_shard", "shard_grad_op", "no_shard"]),
        "prompts": [random.randint(1, 9) for _ in range(random.randint(1, 3))] if prompts else [],  # lengths
        "new_tokens": random.randint(3, 9) if prompts else 0,
        "round_trip": random.random() < 0.3,
        "scale": random.choice([0.1, 0.3, 0.3, 0.6]),  # deviation of the weights
    }


def size(case):
    """How many options differ from the plain case of the family."""
    return sum(1 for _ in simpler(case))


def simpler(case):
    """The same case with one option back at its plain value or gone, for every option."""
    if "adapter" in case:
        yield {key: value for key, value in case.items() if key != "adapter"}
    plain = {"config": families.PLAIN[case["family"]], "run": PLAIN_RUN, "adapter": adapters.PLAIN}
    for part, values in plain.items():
        for key, value in case.get(part, {}).items():
            if key == "model_type" or key in values and value == values[key]:
                continue
            smaller = copy.deepcopy(case)
            if key in values:
                smaller[part][key] = values[key]
            else:
                del smaller[part][key]
            yield smaller
        for key in values.keys() - case.get(part, values).keys():
            smaller = copy.deepcopy(case)
            smaller[part][key] = values[key]
            yield smaller
    sizes = {**case["config"], **families.PLAIN[case["family"]]}  # extents that fit each other
    if sizes != case["config"]:
        yield {**copy.deepcopy(case), "config": sizes}


def shrink(case, fails):
    """Drops one option after the other while `fails(case)` stays true."""
    while True:
        smaller = next((c for c in simpler(case) if size(c) < size(case) and fails(c)), None)
        if smaller is None:
            return case
        case = smaller
