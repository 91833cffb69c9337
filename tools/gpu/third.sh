# The stages of `tools/gpu_check.sh third`: PyTorch next to this program, races. To be sourced.
# A stage is a function stage_NAME; its last line goes into the table. 77: skipped.
# Read next: tools/gpu_check.sh, which has bench, measured and of_four.
stages="peer:210 racecheck:120"

# The same steps in PyTorch, each with its own limit, beside ours on the same card. The kinds that are
# fastest as a rule come first; --master is PyTorch with f32 parameters, which ours are.
peers="gpt2-124m:64 gpt2-1558m:16 qwen2.5-0.5b:16 qwen2.5-1.5b:8"
stage_peer() {
  local entry model batch kind line missing=0
  python3 -c 'import torch, transformers' 2>/dev/null || { echo "no torch and transformers"; return 77; }
  for kind in "ours" "--master --compile" --master --compile; do
    for entry in $peers; do
      model=${entry%:*} batch=${entry#*:}
      if [ "$kind" = ours ]; then
        timeout 25 bash -uo pipefail -c 'bench "$@"' _ "$model" "$batch" 1024 --steps 5
        continue
      fi
      # shellcheck disable=SC2086
      line=$(timeout 40 python3 "$tools/bench/torch_step.py" --device cuda --model "$model" --batch "$batch" \
        --seq 1024 --dtype bf16 --steps 5 $kind | grep -a ms_min)
      [ -n "$line" ] || { echo "FAILED $model $kind"; missing=$((missing + 1)); continue; }
      sed "s/^{/{\"kind\": \"PyTorch $kind\", /" <<<"$line" | measured
    done
  done
  echo "PyTorch beside this program; $missing of its runs measured nothing"
  grep -aq PyTorch "$work/json/peer"
}

# Tests ask for too much memory on purpose: failed calls are no errors here.
stage_racecheck() {
  local tool status failed=0 cut="" files=""
  "$run" bash -c 'command -v compute-sanitizer' || { echo "no compute-sanitizer"; return 77; }
  [ -z "$SMALL" ] || files="--source-file=*elementwise*"
  for tool in racecheck memcheck; do
    # shellcheck disable=SC2086
    timeout $((55 * ${LIMITS:-1})) "$run" compute-sanitizer --tool $tool --report-api-errors no --error-exitcode 9 \
      "$PREBUILT/bin/test_gpu" --no-colors=1 --test-case-exclude='*cuDNN*' --source-file-exclude='*cudnn*' $files |
      tee "$tool.txt"
    status=${PIPESTATUS[0]}
    if grep -qE '^=+ (Error|Invalid|Race|Program hit)|ERROR SUMMARY: [1-9]' $tool.txt; then
      failed=1
    elif [ "$status" = 124 ]; then
      cut+="; $tool was cut before its end"
    elif [ "$status" != 0 ]; then
      failed=1
    fi
  done
  echo "racecheck and memcheck on the kernels' tests$cut"
  return $failed
}
