# The stages of `tools/gpu_check.sh first`, in the order of what a second of each teaches. To be sourced.
# A stage is a function stage_NAME; its last line is what the table says of it. 77: skipped.
# Read next: tools/gpu_check.sh, which has bench, measured and of_four.
stages="versions:20 matmul:15 step:60 cudnn:120 tests:60 dispatch:20 timed:45 models:100 kernels:60 large:60"

# The libraries, read once, so that the next stage does not wait for the disk, and the rates of the card: its clocks, and
# PyTorch's largest product and copy.
stage_versions() {
  nvidia-smi
  "$run" fsdp --version || return
  "$run" bash -c 'tr : "\n" <<<"$LD_LIBRARY_PATH"'
  local name found missing="" ceilings
  # cuDNN loads its engines from further files of its folder.
  for name in libcublasLt.so libcudnn.so.9 libcudnn_ libnccl.so.2 libnvrtc; do
    found=$("$run" bash -c 'IFS=:; for f in $LD_LIBRARY_PATH; do compgen -G "$f/$0*.so*" || compgen -G "$f/$0*"; done' $name |
      xargs -r realpath | sort -u)
    printf '%-24s %s\n' $name "$(head -n 1 <<<"$found")"
    [ -n "$found" ] || [ $name = libcudnn_ ] || missing+=" $name"
    [ -z "$found" ] || tr '\n' '\0' <<<"$found" | xargs -0 cat | wc -c
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

one_test() { "$run" test_gpu --no-colors=1 --duration=true --source-file="*/tests/kernels/cuda/$1"; }

# Alone and before all others: a fault in a product would end every later case of its process.
stage_matmul() {
  [ -z "$SMALL" ] || { echo "SMALL: every product takes too long on the emulator"; return 77; }
  one_test matmul_test.cpp || return
  grep -qE 'test cases: +[1-9]' "$log" || { echo "test_gpu has no tests of products"; return 1; }
  echo "products of every dtype and layout, views with odd leading dimensions"
}

# With cuDNN or not at all: a fallback to our own attention must not pass for it.
stage_step() {
  bench gpt2-124m 64 1024 --steps 10 --attention cudnn && { echo "with cuDNN's attention"; return; }
  bench gpt2-124m 64 1024 --steps 10 && echo "--attention cudnn fails, auto runs"
  return 1
}

# cuDNN makes a plan for every shape, 0.4 s each. A line for each shape, as it ends.
stage_cudnn() {
  local status=0
  one_test cudnn_attention_test.cpp || status=$?
  local shapes
  shapes=$(grep -c '^cuDNN: ' "$log")
  [ $status != 0 ] || [ "$shapes" != 0 ] || [ -n "$SMALL" ] || { echo "no shape ran: $(grep -m 1 SKIP "$log")"; return 1; }
  echo "$shapes shapes of attention"
  return $status
}

# One process for each source file, so that a lost context ends no other's cases. The longest first.
stage_tests() {
  local files
  files=$("$run" test_gpu --list-test-cases --reporters=xml | grep -o '/tests/kernels/cuda/[a-z_0-9]*\.cpp' |
    sed 's|.*/||' | sort -u | grep -vE '^(matmul|cudnn_attention)_')
  [ -n "$files" ] || { echo "test_gpu lists no tests"; return 1; }
  [ -z "$SMALL" ] || files=$(grep -E '^(elementwise|norm|copy_heads|library|dropout)_' <<<"$files")
  { grep -E 'attention|nccl|shard' <<<"$files"; grep -vE 'attention|nccl|shard' <<<"$files"; } | of_four one_test
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

# of_model MODEL BATCH: four micro-steps of so many sequences, once to warm up and twice
of_model() {
  timeout $((30 * ${LIMITS:-1})) bash -uo pipefail -c 'bench "$@"' _ "$1" $(($2 * 4)) 1024 --accumulate 4 --warm-up 1 --steps 2
}
# Every model with 16 sequences, or 8 where the GPU has no memory for 16; then with 32.
stage_models() {
  local model models="gpt2-1558m qwen2.5-0.5b qwen2.5-1.5b" failed=0 sensors
  [ -z "$SMALL" ] || models=gpt2-1558m
  nvidia-smi -i 0 --query-gpu=clocks.sm,power.draw --format=csv,noheader,nounits -lms 500 >clocks.csv &
  sensors=$!
  for model in $models; do
    of_model "$model" 16 || of_model "$model" 8 || { echo "FAILED $model: no batch ran"; failed=$((failed + 1)); }
  done
  for model in $models; do
    [ -n "$SMALL" ] || of_model "$model" 32 || echo "$model: nothing with 32 sequences"
  done
  kill $sensors
  sort -n clocks.csv | awk -F ', ' '{ clock[NR] = $1; if ($2 > watts) watts = $2 }
    END { if (NR > 0) printf "clock: %d MHz at least, median %d MHz; power: %d W at most; %d readings\n", clock[1], clock[int((NR + 1) / 2)], watts, NR }'
  echo "$failed of the models failed"
  [ $failed = 0 ]
}

stage_large() {
  [ "$memory_gib" -ge 130 ] || [ -n "$SMALL" ] || { echo "$memory_gib GiB of memory: 130 are needed"; return 77; }
  train llama3-8b 4 4096 model.preset=llama3-8b train.steps=8 train.recompute.mode=full train.master_dtype=bf16 \
    train.stochastic_rounding=true train.optimizer.state_dtype=bf16 || return
  echo "8B parameters: masters and moments of 16 bits, full recompute"
}
