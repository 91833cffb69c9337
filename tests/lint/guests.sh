#!/usr/bin/env bash
# A guest, which is a program or a guide that tools/guides imitates, has its name in that room alone: the
# other rooms walk lists of guests (tools/config/guests.h). tools/commands may name them, too, to print
# what is theirs; models may, for families of models that bear such names, and tools/predict/formulas,
# which quotes its sources. optim names a schedule and a loss scale after the program that published
# them. Comments may name whom they want.
#   tests/lint/guests.sh [ROOT]      prints path:line: message, exits 1 on any
set -uo pipefail
cd "${1:-$(dirname "$0")/../..}" || exit 2
names='fairseq|chess|kaust|workshop|deepspeed|accelerate|trainer_state|(train|eval|all)_results|TrainingArguments|axolotl|llama_?factory'
home='^(tools/(guides|commands|recipes|predict/formulas)|models|optim)/'

mapfile -t sources < <(find core kernels models comm optim tools -type f \
  \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) 2>/dev/null | sort | grep -vE "$home")
[ "${#sources[@]}" -gt 0 ] || exit 0
# The schedule is a value that optim declares, workshop_gpt a family of models.
found=$(awk -v names="$names" '
  {
    code = $0
    sub(/(^|[ \t])\/\/.*$/, "", code)
    gsub(/fairseq_(polynomial_decay|\*)|kFairseqPolynomialDecay|workshop_gpt/, "", code)
    if (match(tolower(code), tolower(names)))
      print FILENAME ":" FNR ": a name of a guest, \"" substr(code, RSTART, RLENGTH) "\": it belongs to tools/guides"
  }' "${sources[@]}")
if [ -n "$found" ]; then
  echo "$found"
  exit 1
fi
echo "guests: ${#sources[@]} files, none names a guest"
