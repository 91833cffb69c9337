"""Random models against transformers and PEFT, by seed. `check_seeds` is this part's entry; see run.py.

A failing case is shrunk to the smallest that still fails at the same quantity, and stays as a folder that
`fsdp verify` reads.
"""

import json
import time
import warnings
from collections import Counter

import cases
import program
import reference
import torch
import transformers

MOST_SHRUNK = 5  # of all failures, one of each kind first


def check_seeds(fsdp, seeds, scratch):
    """Returns how many failed, and how many were compared."""
    torch.set_num_threads(1)
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    warnings.simplefilter("ignore")
    counts, refusals, failures, begin = Counter(), Counter(), [], time.monotonic()
    compared = Counter()
    for seed in seeds:
        case = cases.draw(seed)
        outcome = check(fsdp, case, scratch / "case")
        counts[outcome.status] += 1
        if outcome.status == "passed":
            compared.update(features(case, scratch / "case"))
        elif outcome.status == "failed":
            failures.append((outcome, case))
            print(f"seed {seed}: {case['family']}: {outcome.what}: {outcome.detail.strip()[:200]}", flush=True)
        else:
            refusals[f"{outcome.status}: {outcome.what}"] += 1
    print_counts(counts, compared, refusals, time.monotonic() - begin)
    if failures:
        print_smallest(fsdp, failures, scratch)
    return len(failures), counts["passed"] + len(failures)


def check(fsdp, case, folder):
    try:
        gradients = reference.write(case, folder)
    except reference.NotComputed as error:
        return program.Outcome("not computed", str(error)[:110])
    return program.judge(fsdp, case, folder, gradients)


def features(case, folder):
    yield case["family"]
    run = case["run"]
    if run["padding"] != "none":
        yield f"padding {run['padding']}"
    if (folder / "generation.json").exists():
        yield "generation"
    if "adapter" in case:
        yield "adapter"
    elif run["round_trip"]:
        yield "round trip"
    if run["ranks"] > 1:
        yield "several ranks"


def print_counts(counts, compared, refusals, seconds):
    print(f"models: {counts['passed']} agree with transformers, {counts['failed']} do not, "
          f"{counts['refused']} refused by name, {counts['not computed']} not computed by transformers itself; "
          f"{seconds:.0f} s")  # fmt: skip
    print("  agree: " + ", ".join(f"{name} {count}" for name, count in sorted(compared.items())))
    for reason, count in refusals.most_common():
        print(f"  {count} {reason}")


def print_smallest(fsdp, failures, scratch):
    first_of_kind = {outcome.what: (outcome, case) for outcome, case in reversed(failures)}
    shrunk = []
    for outcome, case in list(first_of_kind.values())[:MOST_SHRUNK]:

        def fails(smaller, what=outcome.what):
            again = check(fsdp, smaller, scratch / "shrinking")
            return again.status == "failed" and again.what == what

        shrunk.append((outcome, cases.shrink(case, fails)))
    for outcome, case in sorted(shrunk, key=lambda entry: cases.size(entry[1])):
        folder = scratch / f"seed_{case['seed']}"
        again = check(fsdp, case, folder)
        print(f"smallest case of seed {case['seed']}, {outcome.what}: {again.detail.strip()[:300]}\n"
              f"  {json.dumps({k: v for k, v in case.items() if k != 'seed'})}\n  {folder}")  # fmt: skip
