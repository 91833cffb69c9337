#!/usr/bin/env bash
# tools/gpu_check.sh where there is no GPU: it says so; and with stand-ins for the GPU's tools and for the
# programs it builds: its stages, its table, and the status where one of them fails.
set -uo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0
mkdir -p "$folder/bin" "$folder/build"

# check WHAT STATUS WANTED PATTERN...: each must be in the output, which is printed where one is not
check() {
  local what=$1 status=$2 wanted=$3 pattern
  shift 3
  local wrong=0
  [ "$status" = "$wanted" ] || { echo "FAILED: $what: status $status, expected $wanted"; wrong=1; }
  for pattern in "$@"; do
    grep -qE -- "$pattern" "$folder/output" || { echo "FAILED: $what: no line like: $pattern"; wrong=1; }
  done
  [ $wrong = 0 ] || { cat "$folder/output"; failed=1; }
}
stand_in() {  # NAME: the script is on stdin
  { echo '#!/usr/bin/env bash'; cat; } >"$folder/$1"
  chmod +x "$folder/$1"
}
gpu_check() { PATH=$folder/bin:$PATH BUILD=$folder/build bash "$SOURCE/tools/gpu_check.sh" "$folder/out" >"$folder/output" 2>&1; }

stand_in bin/nvidia-smi <<<'echo "NVIDIA-SMI has failed: no driver"; exit 9'
gpu_check
check "without a GPU" $? 2 '^gpu-check: no NVIDIA GPU here: NVIDIA-SMI has failed: no driver$'

stand_in bin/nvidia-smi <<'S'
case "$*" in
  *compute_cap*) echo 9.0 ;;
  *name,*) echo "NVIDIA H200, 570.1, 1980 MHz, 700 W" ;;
esac
S
stand_in bin/cmake <<'S'
echo "cmake $*" >>"$(dirname "$0")/../calls"
echo CMAKE_CUDA_COMPILER:FILEPATH=/nvcc >"$(dirname "$0")/../build/CMakeCache.txt"
S
stand_in bin/ctest <<<'echo "100% tests passed, 0 tests failed out of 12"'
stand_in bin/mpirun <<<'while [ "$1" != -n ]; do shift; done; shift 2; exec "$@"'
stand_in bin/compute-sanitizer <<<'echo "========= ERROR SUMMARY: ${FINDINGS:-0} errors"'
stand_in bin/python3 <<'S'
[[ "$*" = *nvidia* ]] && echo /the/wheels
[ "$1" = -c ] && exit 0
line="$*"
rate=400000; [[ $line = *--compile* ]] && rate=450000
master=false; [[ $line = *--master* ]] && master=true && rate=$((rate - 100000))
model=${line##*--model }
printf '{"model": "%s", "batch": 9, "master": %s, "ms_min": 9.5, "tokens_per_s": %s.5}\n' "${model%% *}" $master $rate
S
stand_in build/test_gpu <<<'exit 0'
# a large model does not fit with its first batch; the CPU's gradients are the GPU's unless told
stand_in build/fsdp <<'S'
line="$*"
case "$line" in
  --version) echo "fsdp 0" ;;
  verify*) echo "within all limits"; exit ${VERIFY_STATUS:-0} ;;
  "bench kernels"*) echo "norm 85 % of copy" ;;
  "bench step"*)
    batch=${line##*--batch }; batch=${batch%% *}
    model=${line##*--preset }; model=${model%% *}
    [ "$model:$batch" = gpt2-1558m:16 ] && { echo "fsdp: out of memory" >&2; exit 1; }
    gradient=100; [[ $line = *cuda* ]] && gradient=${GPU_GRADIENT:-100}
    printf '{"model":"%s","batch":%s,"ms_min":8.25,"ms_median":9,"tokens_per_s":%s000.0,"peak_bytes":1,' \
      "$model" "$batch" "$((batch + 420))"
    printf '"peak_bytes_by_category":{"gradient":%s,"workspace":%s}}\n' $gradient $RANDOM ;;
  *) exit 1 ;;
esac
S
gpu_check
check "all stages" $? 0 '^build +passed' '^tests +passed .*100% tests passed' '^verify +passed .* 0 outside' \
  '^ranks +passed .* 0 failed' '^sanitizer +passed' '^memory +passed .* 1 categories' '^kernels +passed' \
  '^steps +passed .* 7 runs' '^peer +passed .* 16 runs of PyTorch; no time for 0 of' '^norm 85 % of copy' \
  '^gpt2-124m +64 +8.2 +484000 +470000: met \| 350000: 1.38 met \| 450000: 1.08$' \
  '^gpt2-1558m +8 .* 47000: met' '^qwen2.5-1.5b +8 .* - \| '
grep -q 'CMAKE_CUDA_ARCHITECTURES=90a-real -DCUDA_DEPS_DIR=/the/wheels' "$folder/calls" || { echo "FAILED: not built for the GPU there"; failed=1; }
[ -s "$folder/out/table.txt" ] && [ -s "$folder/out/steps.json" ] && [ -s "$folder/out/peer.json" ] ||
  { echo "FAILED: no table or no JSON"; failed=1; }

VERIFY_STATUS=1 STAGES="build verify memory" gpu_check
check "a model outside its limits" $? 1 '^verify +FAILED .* [1-9][0-9]* outside' '^memory +passed'
GPU_GRADIENT=101 STAGES=memory gpu_check
check "other memory than the CPU's" $? 1 '^memory +FAILED .* differ' '^> "gradient":101'
FINDINGS=2 STAGES=sanitizer gpu_check
check "a finding of the sanitizer" $? 1 '^sanitizer +FAILED'
LIMIT_S=0 STAGES="sanitizer peer" gpu_check
check "no time left" $? 0 '^sanitizer +skipped .* no time' '^peer +skipped .* no time'
LIMIT_S=3 STAGES=peer gpu_check
check "too little time for PyTorch" $? 1 '^peer +FAILED .* measured nothing'
stand_in bin/ctest <<<'sleep 60'
LIMIT_S=2 STAGES="tests verify" gpu_check
check "a stage that takes too long" $? 1 '^tests +FAILED +[2-9] s +cut: the time was over' '^verify +skipped'
stand_in bin/cmake <<<'while [ "${1:-}" != -B ]; do shift || exit 0; done; rm -f "$2/CMakeCache.txt"; touch "$2/CMakeCache.txt"'
STAGES=build gpu_check
check "no CUDA compiler" $? 1 '^build +FAILED .* no CUDA compiler: tools/setup.sh --cuda$'
exit $failed
