#!/usr/bin/env bash
# Ten minutes on a machine with an NVIDIA GPU: runs there what tools/gpu_prebuild.sh has packed. Nothing is
# built. Each stage has its own limit, and one that fails or is cut stops no other.
#   PREBUILT=FOLDER OUT=FOLDER tools/gpu_check.sh [first|second|third]
#     PREBUILT   the unpacked archive. The folder is only read
#     OUT        gets table.txt, results.json and logs.tar.gz, written anew after each stage
#     first      (default) what one GPU does right, and how fast
#     second     several ranks and GPUs, fixtures, single accesses
#     third      PyTorch next to this program, races
#   ONLY="tests step"   only these stages
#   SMALL=1             a tiny model and few tests: for an emulated GPU, where nothing is fast
#   LIMITS=N            N times the seconds of each stage (default: 1)
# A stage that cannot run says why and counts as skipped. Status: 1 where a stage has failed, 2 without a GPU.
# The stages: tools/gpu/{first,second,third}.sh. Not here: the build (tools/gpu_prebuild.sh).
set -uo pipefail
set -a  # stages run in shells of their own, so that one can be ended
tools=$(cd "$(dirname "$0")" && pwd)
kind=${1:-first}
case "$kind" in
  first | second | third) ;;
  *) echo "usage: PREBUILT=FOLDER OUT=FOLDER tools/gpu_check.sh [first|second|third]" >&2; exit 2 ;;
esac
for folder in PREBUILT OUT; do
  [ -d "${!folder:-}" ] || { echo "gpu-check: $folder: expected a folder, got '${!folder:-}'" >&2; exit 2; }
done
PREBUILT=$(cd "$PREBUILT" && pwd)
OUT=$(cd "$OUT" && pwd)
[ -x "$PREBUILT/bin/fsdp" ] || { echo "gpu-check: $PREBUILT has no bin/fsdp: tools/gpu_prebuild.sh packs it" >&2; exit 2; }
run=$PREBUILT/run
CUDA_WHEELS=$("$run" printenv CUDA_WHEELS)
SMALL=${SMALL:-}

if ! gpus=$(command -v nvidia-smi >/dev/null || { echo "no nvidia-smi"; exit 1; }; nvidia-smi -L 2>&1); then
  echo "gpu-check: no NVIDIA GPU here: $(head -n 1 <<<"$gpus")" >&2
  exit 2
fi
gpu_count=$(grep -c '^GPU ' <<<"$gpus")
device=$(nvidia-smi -i 0 --query-gpu=name,memory.total,driver_version,clocks.max.sm,power.limit --format=csv,noheader)
memory_gib=$(($(nvidia-smi -i 0 --query-gpu=memory.total --format=csv,noheader,nounits) / 1024))
work=$(mktemp -d)  # logs, lines of JSON, and what the program writes
cd "$work" || exit 2
mkdir logs json

# ---- for the stages ------------------------------------------------------------------------------
# The log gets all of stdin, the table and results.json its lines of JSON.
measured() { awk -v to="$work/json/$stage" '{ print; fflush() } /^[{]/ { print >>to }'; }

# bench MODEL BATCH SEQ OPTIONS VALUES...: a training step in bf16, as a line of JSON. An emulated GPU takes
# minutes for the smallest preset: there `train` with the same options.
bench() {
  local model=$1 batch=$2 seq=$3 flags="" micro_steps=""
  shift 3
  if [ -z "$SMALL" ]; then
    "$run" fsdp bench step --preset "$model" --batch "$batch" --seq "$seq" --dtype bf16 --backend cuda --json "$@" | measured
    return
  fi
  while [ $# -gt 0 ]; do
    case "$1" in
      --attention | --matmul-choice | --gpu-transport) flags+=" $1 $2" ;;
      --accumulate) micro_steps=2 ;;
    esac
    shift 2
  done
  flags=$flags train "$model" "$batch" "$seq" ${micro_steps:+train.micro_steps=$micro_steps}
}

# train NAME BATCH SEQ KEY=VALUE...: steps of `fsdp train` on random tokens in bf16, as a line of JSON
train() {
  local name=$1 batch=$2 seq=$3 folder=$work/$1 keys rate
  shift 3
  keys=("$@")
  if [ -n "$SMALL" ]; then
    batch=4 seq=16 keys=(model.model_type=llama model.hidden_size=32 model.layers=1 model.heads=2 train.steps=5)
    for key in "$@"; do [[ $key = model.* || $key = train.steps=* ]] || keys+=("$key"); done
    keys+=(model.vocab_size=64)
  fi
  # shellcheck disable=SC2086
  "$run" fsdp train --backend cuda ${flags:-} --set data.format=synthetic data.sequence_length=$seq train.batch=$batch \
    train.dtype=bf16 train.log_every=1 train.save=false runtime.run_dir="$folder" "${keys[@]}" || return
  # the fastest of the steps after the second
  rate=$(grep -ao '"tokens_per_s":[0-9.e+]*' "$folder/metrics.jsonl" | tail -n +3 | cut -d: -f2 | sort -g | tail -n 1)
  rm -rf "$folder"
  printf '{"model":"%s","batch":%d,"seq":%d,"ms_min":%s,"tokens_per_s":%s}\n' "$name" $batch $seq \
    "$(awk -v tokens=$((batch * seq)) -v rate="${rate:-0}" 'BEGIN { print (rate > 0 ? 1000 * tokens / rate : 0) }')" "${rate:-0}" |
    measured
}

# of_four FUNCTION: calls it with every line of stdin, four at a time; says "ok LINE" or "FAILED LINE"
# below what the function printed. Status: that of the worst.
of_four() {
  xargs -d '\n' -P 4 -I LINE bash -uo pipefail -c '
    begin=$EPOCHREALTIME; word=ok
    output=$('"$1"' "$1" 2>&1) || word=FAILED
    printf "%s\n%s %s (%.1f s)\n" "$output" "$word" "$1" "$(seconds_since "$begin")"
    [ $word = ok ]' _ LINE
}
seconds_since() { awk -v from="$1" -v to="$EPOCHREALTIME" 'BEGIN { print to - from }'; }
counted() { echo "$(grep -c '^ok ' "$log") ok, $(grep -c '^FAILED ' "$log") failed, $(grep -c '^\[SKIP\]' "$log") skipped cases"; }

# ---- stages, one after the other -----------------------------------------------------------------
# shellcheck source=/dev/null
source "$tools/gpu/$kind.sh"
summary=""
stages_json=""
worst=0

quoted() { printf '"%s"' "$(tr -d '\000-\037' <<<"${1:0:1000}" | sed 's/\\/\\\\/g; s/"/\\"/g')"; }

session=""  # of the stage that runs
# All that a stage has started ends with it, also what `timeout` in it has put into process groups of their own.
end_session() {
  local living
  for _ in {1..10}; do  # what is about to start another process may do so before it is killed
    [ -n "$session" ] || break
    living=$(cat /proc/[0-9]*/stat 2>/dev/null |
      awk -v session="$session" '{ pid = $1; sub(/.*\) /, ""); if ($4 == session && $1 != "Z") print pid }')
    [ -n "$living" ] || break
    xargs kill -KILL <<<"$living" 2>/dev/null
  done
  session=""
}
on_the_card() { timeout 5 nvidia-smi --query-compute-apps=pid,used_memory --format=csv,noheader | tr '\n' ';'; }

# run_stage NAME LIMIT: 77 means skipped, with the reason in the last line of its log
run_stage() {
  stage=$1 log=$work/logs/$1.log
  local limit=$(($2 * ${LIMITS:-1})) begin=$EPOCHREALTIME status=0 word says seconds
  printf '== %s (%d s)\n' "$stage" $limit
  printf 'processes on the card before: %s\n' "$(on_the_card)" >"$log"
  setsid timeout --kill-after=1 $limit bash -uo pipefail -c "stage_$stage" >>"$log" 2>&1 &
  session=$!
  wait $session || status=$?
  end_session
  seconds=$(printf '%.1f' "$(seconds_since "$begin")")
  says=$(tail -n 1 "$log" | tr -d '\r')
  case $status in
    0) word=passed ;;
    77) word=skipped ;;
    124 | 137) word=FAILED says="cut after $limit s; $(counted); $says" ;;
    *) word=FAILED ;;
  esac
  [ $word != FAILED ] || { worst=1; tail -n 12 "$log" | cut -c 1-400; }
  summary+=$(printf '%-11s %-8s %6s of %3d s  %s' "$stage" $word "$seconds" $limit "${says:0:160}")$'\n'
  stages_json+=${stages_json:+,}$'\n'$(printf '{"stage":"%s","status":"%s","seconds":%s,"limit":%d,"says":%s}' \
    "$stage" $word "$seconds" $limit "$(quoted "$says")")
  tail -n 1 <<<"${summary%$'\n'}"
}

# A line for each line of JSON that has a rate, beside what is asked of one GPU, or published of one.
print_rates() {
  [ -n "$(ls json)" ] || return 0
  awk -v device="$device" '
    BEGIN {
      print ""
      form = "%-11s %-16s %6s %6s %6s %10.2f %11.0f %7.7s  %s%s\n"
      printf "%-11s %-16s %6s %6s %6s %10s %11s %7s  %s\n", "stage", "model", "batch", "micro", "seq", "ms", "tokens/s", "% light", "beside"
      if (device ~ /H200/) {
        bar["gpt2-124m"] = 470000; bar["gpt2-1558m"] = 47000
        bar["llama3-8b"] = 10471; of["llama3-8b"] = " of KempnerForge, FSDP2 on one H200"
      }
      if (device ~ /H[12]00/) {
        bar["qwen2.5-0.5b"] = 150000; bar["qwen2.5-1.5b"] = 58900
        of["qwen2.5-0.5b"] = of["qwen2.5-1.5b"] = " of LLM.Q on one H100"
      }
    }
    function value(key,    text) {
      if (!match($0, "\"" key "\": *\"?[^,\"}]*")) return ""
      text = substr($0, RSTART, RLENGTH); sub(/^[^:]*: *"?/, "", text)
      return text
    }
    {
      rate = value("tokens_per_s")
      if (rate == "") next
      model = value("model"); stage = FILENAME; sub(/.*\//, "", stage)
      beside = !(model in bar) ? "" : sprintf(" %.2f of %d%s", rate / bar[model], bar[model], model in of ? of[model] : " asked for")
      printf form, stage, model, value("batch"), value("micro_steps"), value("seq"), value("ms_min"), rate,
        value("percent_of_speed_of_light"), value("kind"), beside
    }' json/*
}

write_results() {
  {
    printf '%s, %s, %s\n%s GPUs: %s\nbuilt: %s\n\n%s' "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$kind" "$(uname -n)" \
      "$gpu_count" "$device" "$(cat "$PREBUILT/built.txt")" "$summary"
    print_rates
    if [ -f logs/kernels.log ]; then echo; cat logs/kernels.log; fi
  } >"$OUT/table.txt"
  {
    printf '{"date":"%s","check":"%s","gpus":%d,"device":%s,"built":%s,\n"stages":[%s],\n"measured":{' \
      "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$kind" "$gpu_count" "$(quoted "$device")" \
      "$(quoted "$(cat "$PREBUILT/built.txt")")" "$stages_json"
    for file in json/*; do
      [ ! -f "$file" ] || printf '\n"%s":[%s],' "${file#json/}" "$(paste -sd, "$file")"
    done | sed '$s/,$//'
    printf '}}\n'
  } >"$OUT/results.json"
  tar -czf "$OUT/logs.tar.gz" logs json
}

# Also where a signal ends the check early, perhaps while the table is being written.
exec 3>&1
finish() {
  trap - EXIT
  end_session
  write_results
  { echo; cat "$OUT/table.txt"; } >&3
  rm -rf "$work"
  exit $worst
}
trap finish EXIT
trap 'worst=1; exit' INT TERM HUP
for entry in $stages; do
  [[ -z "${ONLY:-}" || " $ONLY " = *" ${entry%:*} "* ]] || continue
  run_stage "${entry%:*}" "${entry#*:}"
  write_results
done
