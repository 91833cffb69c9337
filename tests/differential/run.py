"""Compares this program with transformers, PEFT and tokenizers on random configurations and texts. See README.md.

    python3 tests/differential/run.py --fsdp build/fsdp --seeds 0-599

Status 0: nothing differs, 1: something does, or too little was compared.
"""

import argparse
import importlib
import importlib.util
import os
import sys
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
sys.dont_write_bytecode = True

# Each is a module beside this file with check_seeds(fsdp, seeds, scratch), which prints its counts and its smallest
# failing configuration, and returns how many seeds failed and how many were compared.
PARTS = {"models": ["torch", "transformers", "peft", "safetensors"], "tokenizers_check": ["tokenizers"],
         "tokenizer_classes": ["tokenizers", "transformers", "sentencepiece"], "trainer_arguments": ["torch", "transformers", "yaml"]}  # fmt: skip
FEW_SEEDS, COMPARED = 50, 0.7  # of more seeds, that part is compared at least: the others are refused


def parse_seeds(text):
    seeds = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        seeds += range(int(first), int(last or first) + 1)
    return seeds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fsdp", type=Path, required=True, help="the program")
    parser.add_argument("--seeds", type=parse_seeds, required=True, help="0-599, or 17, or 3,7,20-29")
    parser.add_argument("--scratch", type=Path, default=Path("build/differential"), help="folder of what is written")
    parser.add_argument("--only", choices=PARTS, help="one part only")
    args = parser.parse_args()
    if not args.fsdp.exists():
        sys.exit(f"{args.fsdp}: no such program: build it first")
    all_well = True
    for part in [args.only] if args.only else PARTS:
        missing = [name for name in PARTS[part] if not importlib.util.find_spec(name)]
        if missing:
            sys.exit(f"{part}: this Python has no {', '.join(missing)}: see tests/differential/README.md")
        failed, compared = importlib.import_module(part).check_seeds(args.fsdp, args.seeds, args.scratch / part)
        expected = COMPARED * len(args.seeds) if len(args.seeds) > FEW_SEEDS else 1
        if compared < expected:
            print(f"{part}: compared {compared} of {len(args.seeds)} seeds, expected at least {expected:.0f}")
        all_well = all_well and failed == 0 and compared >= expected
    sys.exit(0 if all_well else 1)


if __name__ == "__main__":
    main()
