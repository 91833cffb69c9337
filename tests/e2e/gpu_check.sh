#!/usr/bin/env bash
# tools/gpu_prebuild.sh packs a program that runs without this machine's libraries. tools/gpu_check.sh with
# stand-ins for the GPU's tools and for what was packed: its stages, its table, its results, and its status
# where one of them fails. The same with the emulated GPU: gpu_rehearsal_slow.sh.
# Environment: FSDP the program, MPIRUN how to start processes (empty: no MPI), SOURCE the repository.
source "$(dirname "$0")/../support/e2e.sh"
folder=$scratch
mkdir -p bin out prebuilt/bin prebuilt/fixtures/models/{gpt2,llama} prebuilt/fixtures/fsdp/w2
touch prebuilt/fixtures/models/{gpt2,llama}/reference.json
echo '{"world_size": 2}' >prebuilt/fixtures/fsdp/w2/reference.json
echo "0123, for 90a-real" >prebuilt/built.txt
cp "$SOURCE/tools/gpu/run.sh" prebuilt/run

# check WHAT STATUS WANTED PATTERN...: each must be in the output, which is printed where one is not
check() {
  local what=$1 status=$2 wanted=$3 pattern wrong=0
  shift 3
  [ "$status" = "$wanted" ] || { fail "$what: status $status, expected $wanted"; wrong=1; }
  for pattern in "$@"; do
    grep -qE -- "$pattern" output || { fail "$what: no line like: $pattern"; wrong=1; }
  done
  [ $wrong = 0 ] || cat output
}
stand_in() {  # NAME: the script is on stdin
  { echo '#!/usr/bin/env bash'; cat; } >"$1"
  chmod +x "$1"
}
gpu_check() { PATH=$folder/bin:$PATH PREBUILT=prebuilt OUT=out "$SOURCE/tools/gpu_check.sh" "$@" >output 2>&1; }

# ---- what is packed --------------------------------------------------------------------------------
PROGRAMS="$FSDP $FSDP" "$SOURCE/tools/gpu_prebuild.sh" -o carried/test.tar >output 2>&1
check "pack" $? 0 '/test.tar: [0-9.]+ MiB$'
mkdir there
tar -C there -xf carried/test.tar
for file in fixtures/models/gpt2/reference.json fixtures/fsdp/gpt2_fp32_w2/reference.json built.txt bin/test_gpu; do
  [ -s there/prebuilt/$file ] || fail "$file was not packed"
done
# elsewhere PROGRAM: what it takes from this machine: of all its libraries only glibc's are this machine's
elsewhere() {
  env -i PATH=/usr/bin:/bin there/prebuilt/run ldd "there/prebuilt/bin/$1" | awk '$2 == "=>" { print $3 }' |
    grep -vE "^$folder/there/|/lib(c|m|dl|rt|pthread|resolv|util)[.]so"
}
[ -z "$(elsewhere fsdp)" ] || fail "fsdp takes from this machine: $(elsewhere fsdp)"
env -i PATH=/usr/bin:/bin there/prebuilt/run fsdp --version >output 2>&1
check "the packed program" $? 0 '^fsdp '
if [ -n "${MPIRUN:-}" ]; then
  env -i PATH=/usr/bin:/bin HOME="$folder" there/prebuilt/run mpirun -n 2 fsdp verify \
    there/prebuilt/fixtures/fsdp/gpt2_fp32_w2 --backend cpu --threads 1 >output 2>&1
  check "the packed mpirun" $? 0 'within all limits'
else
  echo "[SKIP] gpu_check: the packed mpirun: no MPI"
fi
"$SOURCE/tools/gpu_prebuild.sh" one two >output 2>&1
check "two architectures" $? 2 '^usage: '

# ---- the check ---------------------------------------------------------------------------------------
stand_in bin/nvidia-smi <<<'echo "NVIDIA-SMI has failed: no driver"; exit 9'
gpu_check
check "nothing is packed" $? 2 '^gpu-check: .*prebuilt has no bin/fsdp'
stand_in prebuilt/bin/fsdp <<<'exit 1'
gpu_check
check "without a GPU" $? 2 '^gpu-check: no NVIDIA GPU here: NVIDIA-SMI has failed: no driver$'

stand_in bin/nvidia-smi <<'S'
case "$*" in
  -L) for ((i = 0; i < ${GPUS:-1}; ++i)); do echo "GPU $i: NVIDIA H200"; done ;;
  *nounits) echo "${MEMORY:-143771}" ;;
  *name,*) echo "NVIDIA H200, 143771 MiB, 580.1, 1980 MHz, 700 W" ;;
  *compute-apps*) echo "4711, 512 MiB" ;;
  *clocks*) printf '1980, 650.5\n1755, 690.1\n'; exec sleep 30 ;;
esac
S
stand_in bin/compute-sanitizer <<<'echo "========= ERROR SUMMARY: ${FINDINGS:-0} errors"'
mkdir -p wheels/{cu13,cudnn,nccl}/lib
touch wheels/cu13/lib/lib{cublasLt.so.13,nvrtc-builtins.so.13.0} wheels/cudnn/lib/libcudnn.so.9 wheels/nccl/lib/libnccl.so.2
stand_in bin/python3 <<S
[[ "\$*" = *"import glob, nvidia"* ]] && { echo $folder/wheels/cu13/lib:$folder/wheels/cudnn/lib:$folder/wheels/nccl/lib; exit; }
[[ "\$*" = *ceilings* ]] && echo "ceilings by PyTorch: product 790 TFLOP/s, copy 4.3 TB/s"
[ "\$1" = -c ] && exit 0
printf '{"model": "gpt2-124m", "batch": 64, "ms_min": 9.5, "tokens_per_s": 400001}\n'
S
stand_in prebuilt/bin/mpirun <<<'shift 2; exec "$@"'
stand_in prebuilt/bin/test_gpu <<'S'
case "$*" in
  *--reporters=xml*) printf '<TestCase filename="/a/tests/kernels/cuda/%s_test.cpp"/>\n' norm attention norm matmul cudnn_attention ;;
  *norm_test*) echo "[SKIP] no cuDNN"; exit ${NORM:-0} ;;
  *cudnn_attention_test*) printf 'cuDNN: bf16, %d heads\n' 1 2 ;;
  *matmul_test*) echo "[doctest] test cases:  7 |  7 passed" ;;
esac
S
# the largest model does not fit with 32 sequences; the CPU's gradients are the GPU's unless told
stand_in prebuilt/bin/fsdp <<'S'
line="$*"
echo "$line" >>"${0%/prebuilt/*}/calls"
value() { local of=${line##*--$1 }; echo "${of%% *}"; }
case "$line" in
  --version) echo "fsdp 0" ;;
  verify*) timeout 60 sleep "${VERIFY_SECONDS:-0}"; echo "within all limits"; exit ${VERIFY_STATUS:-0} ;;
  "bench kernels"*) printf '{\n"kernels": []}\n' >"$(value save)"; echo "norm 85 % of copy" ;;
  "bench comm"*) echo "mean busbw 400 GB/s" ;;
  train*train.steps=100000*) mkdir -p "${line##*run_dir=}"; exit 3 ;;
  train*)
    folder=${line##*runtime.run_dir=}; mkdir -p "${folder%% *}"
    printf '{"step":%d,"tokens_per_s":%d}\n' 1 5 2 900000 3 10000 4 11000 >"${folder%% *}/metrics.jsonl" ;;
  "bench step"*)
    [ "$(value preset):$(value batch)" = gpt2-1558m:128 ] && { echo "fsdp: out of memory" >&2; exit 1; }
    [[ $line = *"cudnn"* ]] && [ -n "${NO_CUDNN:-}" ] && { echo "fsdp: no cuDNN" >&2; exit 1; }
    gradient=100; [[ $line = *cuda* ]] && gradient=${GPU_GRADIENT:-100}
    printf '{"model":"%s","batch":%s,"ms_min":8.25,"tokens_per_s":484000.0,' "$(value preset)" "$(value batch)"
    printf '"peak_bytes_by_category":{"gradient":%s,"workspace":%s}}\n' $gradient $RANDOM ;;
  *) exit 1 ;;
esac
S

gpu_check
check "first" $? 0 '^versions +passed .* of  20 s  ceilings by PyTorch' '^matmul +passed' '^step +passed .* cuDNN' \
  '^cudnn +passed .* 2 shapes' '^tests +passed .* 2 ok, 0 failed, 1 skipped cases' '^dispatch +passed' '^timed +passed' \
  '^kernels +passed' '^models +passed .* 0 of' '^large +passed' \
  '^step +gpt2-124m +64 .* 8.25 +484000 .*1.03 of 470000 asked for' '^models +gpt2-1558m +64 .* of 47000' \
  '^large +llama3-8b +4 .* 1489.45 +11000 .*1.05 of 10471' '^norm 85 % of copy'
[ "$(ls out | tr '\n' ' ')" = "logs.tar.gz results.json table.txt " ] || fail "other files come back: $(ls out)"
cmp -s out/table.txt <(tail -n "$(wc -l <out/table.txt)" output) || fail "the table is not the last that is printed"
tar -xzf out/logs.tar.gz
grep -q '^ok norm_test.cpp' logs/tests.log || fail "no log of the tests"
[ "$(head -qn 1 logs/*.log | sort -u)" = "processes on the card before: 4711, 512 MiB;" ] || fail "processes on the card: $(head -qn 1 logs/*.log)"
grep -q '^clock: 1755 MHz at least, median 1755 MHz; power: 690 W at most; 2 readings$' logs/models.log || { fail "clocks"; cat logs/models.log; }
grep -q '^gpt2-1558m: nothing with 32 sequences$' logs/models.log || { fail "32 sequences"; cat logs/models.log; }
grep -qE '^libcudnn.so.9 +.*/wheels/cudnn/lib/libcudnn.so.9$' logs/versions.log || fail "cuDNN: $(cat logs/versions.log)"
if (PATH=${PATH#"$folder/bin:"} python3 -c '') 2>/dev/null; then
  python3 - out/results.json <<'PY' || fail "results.json: $(cat out/results.json)"
import json, sys
results = json.load(open(sys.argv[1]))
assert [s["stage"] for s in results["stages"]][:3] == ["versions", "matmul", "step"]
assert sum(s["limit"] for s in results["stages"]) <= 560
assert results["measured"]["step"][0]["tokens_per_s"] == 484000, results["measured"]
PY
else
  echo "[SKIP] gpu_check: results.json: no python3"
fi

# `models` fits its limit by the times that are predicted for an H200, and 8 s to start each. Runs of 32 sequences come
# last, and may be cut.
limit=$(sed -n 's/.*"stage":"models",[^}]*"limit":\([0-9]*\).*/\1/p' out/results.json)
seconds=$(grep -E -- '--warm-up 1 .*--steps 2|--steps 2 .*--warm-up 1' calls | grep -v -- '--batch 128' | while read -r line; do
  value() { local of=${line##*--$1 }; echo "${of%% *}"; }
  "$FSDP" explain --world 1 --gpu h200 --set model.preset="$(value preset)" data.sequence_length="$(value seq)" \
    train.batch="$(value batch)" train.micro_steps="$(value accumulate)" train.dtype=bf16 |
    awk '/^predicted step: / { s = $3; if ($4 == "ms") s /= 1000; print 3 * s * 1.3 + 8 }'
done | awk '{ all += $1 } END { print all, NR }')
awk -v limit="$limit" -v all="${seconds% *}" -v runs="${seconds#* }" 'BEGIN { exit !(runs == 3 && all > 24 && all <= limit) }' ||
  fail "models: $seconds of $limit s"

gpu_check second
check "second" $? 1 '^nccl +passed' '^comm +skipped .* one GPU' '^ranks +passed .* 1 ok, 0 failed.* on one GPU' \
  '^strategies +skipped' '^killed +FAILED .* before its first step' '^memory +passed .* 1 categories' \
  '^fixtures +passed .* 4 ok, 0 failed' '^vocabulary +passed' '^sanitizer +passed'
gpu_check third
check "third" $? 0 '^peer +passed .* 0 of its runs' '^racecheck +passed' '^peer +gpt2-124m .* 400001 .*PyTorch --master --compile'
GPUS=2 ONLY="comm ranks strategies" gpu_check second
check "two GPUs" $? 0 '^comm +passed .* 2 GPUs' '^ranks +passed .* NCCL as far' '^strategies +passed .* on 2 GPUs, 0 failed'
[ "$(grep -o '"stage":"[a-z]*","status":"[a-zA-Z]*"' out/results.json | wc -l)" = 3 ] || fail "results.json: other stages"

# The program knows every option and key that it is asked for: it only has no GPU. What verify reads is not there.
sort -u calls | grep -e '--backend cuda' | grep -v '^verify\|run_dir=.*/killed' >asked
while read -r line; do
  # shellcheck disable=SC2086
  CUDA_VISIBLE_DEVICES="" "$FSDP" $line >output 2>&1
  grep -q '^fsdp: runtime.backend: cuda, but' output || fail "fsdp $line: $(cat output)"
done <asked
[ "$(wc -l <asked)" -ge 20 ] || fail "few lines: $(cat asked)"

# ---- what fails stops no other -----------------------------------------------------------------------
VERIFY_STATUS=1 ONLY=fixtures gpu_check second
check "failing fixtures" $? 1 '^fixtures +FAILED .* 0 ok, 4 failed'
NORM=1 NO_CUDNN=1 ONLY="step tests dispatch" gpu_check
check "failing tests" $? 1 '^tests +FAILED .* 1 ok, 1 failed' '^step +FAILED .*--attention cudnn fails, auto runs' '^step +gpt2-124m .* 484000' '^dispatch +passed'
GPU_GRADIENT=101 FINDINGS=2 ONLY="memory sanitizer" gpu_check second
check "other memory" $? 1 '^memory +FAILED .* differ' '^> "gradient":101'
FINDINGS=2 ONLY=racecheck gpu_check third
check "a finding" $? 1 '^racecheck +FAILED'
MEMORY=81559 ONLY=large gpu_check
check "80 GiB" $? 0 '^large +skipped .* 79 GiB of memory'
cp -r "$SOURCE/tools" tools && sed -i 's/fixtures:60/fixtures:1/' tools/gpu/second.sh
PATH=$folder/bin:$PATH PREBUILT=prebuilt OUT=out VERIFY_SECONDS=47.11 ONLY="fixtures nccl" tools/gpu_check.sh second >output 2>&1
check "a stage that takes too long" $? 1 '^fixtures +FAILED +1[.][0-9] of +1 s  cut after 1 s; 0 ok' '^nccl +passed'
! pgrep -f 'sleep 47[.]11' >/dev/null || { fail "a stage that was cut lives on: $(pgrep -af 'sleep 47[.]11')"; pkill -f 'sleep 47[.]11'; }
exit "$failed"
