# The stages of `tools/gpu_check.sh first`, in the order of what a second of each teaches. To be sourced.
# A stage is a function stage_NAME; its last line is what the table says of it. 77: skipped.
# Read next: tools/gpu_check.sh, which has bench, measured and of_four.
stages="versions:15 step:30 tests:60 dispatch:20 timed:45 fixtures:60 kernels:60 models:120 large:60
        vocabulary:50 sanitizer:40"

# What is there, and what the card could do: its clocks, and PyTorch's largest product and copy.
stage_versions() {
  nvidia-smi
  "$run" fsdp --version || return
  "$run" bash -c 'tr : "\n" <<<"$LD_LIBRARY_PATH"'
  local name found missing="" ceilings
  for name in libcublasLt.so libcudnn.so.9 libnccl.so.2 libnvrtc-builtins.so; do
    found=$("$run" bash -c 'IFS=:; for f in $LD_LIBRARY_PATH; do compgen -G "$f/$0*"; done' $name)
    printf '%-24s %s\n' $name "$(head -n 1 <<<"$found")"
    [ -n "$found" ] || missing+=" $name"
  done
  ceilings=$(timeout 12 python3 -c 'import torch
print("torch", torch.__version__, torch.version.cuda, "cuDNN", torch.backends.cudnn.version(), "NCCL", torch.cuda.nccl.version())
n = 8192
a = torch.randn(n, n, device="cuda", dtype=torch.bfloat16); b = a.t().contiguous()
def rate(f, work, rounds=10):
    f(); f(); torch.cuda.synchronize()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record(); [f() for _ in range(rounds)]; end.record(); end.synchronize()
    return work * rounds / begin.elapsed_time(end) / 1e9
big = torch.empty(1 << 30, device="cuda", dtype=torch.bfloat16); other = torch.empty_like(big)
print(f"ceilings by PyTorch: product {rate(lambda: a @ b, 2 * n**3):.0f} TFLOP/s, copy {rate(lambda: other.copy_(big), 4 * 2**30):.2f} TB/s")') ||
    ceilings="no ceilings: no PyTorch here, or it takes too long"
  [ -z "$missing" ] || { echo "not found:$missing"; return 1; }
  echo "$ceilings"
}

# With cuDNN or not at all: a fallback to our own attention must not pass for it.
stage_step() {
  bench gpt2-124m 64 1024 --steps 10 --attention cudnn && { echo "with cuDNN's attention"; return; }
  bench gpt2-124m 64 1024 --steps 10 && echo "--attention cudnn fails, auto runs"
  return 1
}

# One process for each source file, so that a lost context ends no other's cases. The longest first.
one_test() { "$run" test_gpu --no-colors=1 --source-file="*/tests/kernels/cuda/$1"; }
stage_tests() {
  local files
  files=$("$run" test_gpu --list-test-cases --reporters=xml | grep -o '/tests/kernels/cuda/[a-z_0-9]*\.cpp' |
    sed 's|.*/||' | sort -u)
  [ -n "$files" ] || { echo "test_gpu lists no tests"; return 1; }
  [ -z "$SMALL" ] || files=$(grep -E '^(elementwise|norm|copy_heads|library|dropout)_' <<<"$files")
  { grep -E 'attention|matmul|nccl|shard' <<<"$files"; grep -vE 'attention|matmul|nccl|shard' <<<"$files"; } | of_four one_test
  local status=$?
  counted
  return $status
}

# So little work that the step takes what the host needs to start it.
stage_dispatch() {
  bench gpt2-124m 1 64 --steps 10 && echo "what the host needs for a step"
}

stage_timed() {
  bench gpt2-124m 64 1024 --steps 10 --matmul-choice timed || return
  [ -n "$SMALL" ] || "$run" fsdp bench step --preset gpt2-124m --batch 64 --seq 1024 --dtype bf16 --backend cuda \
    --steps 3 --matmul-choice timed --kernels
  local status=$?
  echo "the fastest of cuBLASLt's first eight; where the time goes: logs/timed.log"
  return $status
}

one_model() { "$run" fsdp verify "$PREBUILT/fixtures/models/${1% *}" --dtype "${1#* }" --backend cuda; }
stage_fixtures() {
  local folder
  for folder in "$PREBUILT"/fixtures/models/*/; do
    [ -f "$folder/reference.json" ] || continue
    folder=$(basename "$folder")
    [ -z "$SMALL" ] || [ "$folder" = gpt2 ] || continue
    printf '%s\n' "$folder f32" "$folder bf16"
  done | of_four one_model
  local status=$?
  counted
  return $status
}

# A table of its own: below that of the stages.
stage_kernels() {
  local sizes="--batch 16 --seq 1024"
  [ -z "$SMALL" ] || sizes="--model $PREBUILT/fixtures/models/gpt2 --batch 1 --seq 16 --filter norm --seconds 0.001"
  # shellcheck disable=SC2086
  "$run" fsdp bench kernels --dtype bf16 --backend cuda $sizes --save "$work/json/kernels.table"
  local status=$?
  tr -d '\n' <"$work/json/kernels.table" >"$work/json/kernels" && rm "$work/json/kernels.table"
  echo "every kernel beside a copy and a large product: below"
  return $status
}

# The largest of these numbers of sequences that the GPU has memory for, 16 micro-steps of each.
stage_models() {
  local entry batch failed=0 ran
  for entry in gpt2-1558m:32,16,8 qwen2.5-0.5b:32,16 qwen2.5-1.5b:32,16,8; do
    ran=""
    for batch in $(tr , ' ' <<<"${entry#*:}"); do
      timeout $((40 * ${LIMITS:-1})) bash -uo pipefail -c 'bench "$@"' _ "${entry%:*}" $((batch * 16)) 1024 \
        --accumulate 16 --steps 2 && { ran=1; break; }
    done
    [ -n "$ran" ] || { echo "FAILED ${entry%:*}: no batch ran"; failed=$((failed + 1)); }
    [ -z "$SMALL" ] || break
  done
  echo "$failed of the models failed"
  [ $failed = 0 ]
}

stage_large() {
  [ "$memory_gib" -ge 130 ] || [ -n "$SMALL" ] || { echo "$memory_gib GiB of memory: 130 are needed"; return 77; }
  train llama3-8b 4 4096 model.preset=llama3-8b train.steps=8 train.recompute.mode=full train.master_dtype=bf16 \
    train.stochastic_rounding=true train.optimizer.state_dtype=bf16 || return
  echo "8B parameters: masters and moments of 16 bits, full recompute"
}

stage_vocabulary() {
  local vocabulary
  for vocabulary in 50257 50304; do
    train "gpt2-$vocabulary" 64 1024 model.preset=gpt2-124m train.steps=25 model.vocab_size=$vocabulary || return
  done
  echo "an odd vocabulary, and one of whole tiles"
}

# A training step of a small model, every access checked. Failed calls are no errors here: some are meant to.
stage_sanitizer() {
  local dtype
  "$run" bash -c 'command -v compute-sanitizer' || { echo "no compute-sanitizer"; return 77; }
  for dtype in f32 bf16; do
    "$run" compute-sanitizer --tool memcheck --report-api-errors no --error-exitcode 9 "$PREBUILT/bin/fsdp" verify \
      "$PREBUILT/fixtures/models/gpt2" --dtype $dtype --backend cuda || return
  done
  echo "memcheck finds nothing in a small step in f32 and bf16"
}
