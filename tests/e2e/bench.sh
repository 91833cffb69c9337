#!/usr/bin/env bash
# fsdp bench kernels and fsdp bench comm: what they print, and the statuses that scripts go by.
# Speeds are not looked at. Environment: FSDP the program, SOURCE the repository, MPIRUN how to start
# processes (empty: no MPI).
# Requirements: S1.20, S3.16.
source "$(dirname "$0")/../support/e2e.sh"

# expect STATUS 'regular expression' command...: in stdout or stderr
expect() {
  local status=$1 expected=$2 got
  shift 2
  timeout 120 "$@" >out 2>err </dev/null
  got=$?
  [ "$got" = "$status" ] || { fail "status $got instead of $status: $*"; cat err; }
  grep -qE -- "$expected" out err || { fail "no '$expected' from: $*"; cat out err; }
}

# ---- kernels -------------------------------------------------------------------------------------
shape=hidden=24,heads=2,kv_heads=2,head_dim=12,ffn=40,vocabulary=50,elements=999
kernels=("$FSDP" bench kernels --batch 1 --seq 8 --threads 1 --seconds 0.001)
measure=("${kernels[@]}" --shape $shape --filter glu)
expect 0 '^adam decoupled .* [0-9]+ % *$' "${kernels[@]}" --shape $shape --filter adam
grep -qE '^a copy [0-9.]* GB/s' out || fail "no rate of a copy: $(cat out)"
expect 0 '"kernel": "glu_forward"' "${measure[@]}" --json
cp out now.json
expect 0 '^glu_forward ' "${measure[@]}" --save saved.json
expect 0 '^0 of 2 kernels slower' "${measure[@]}" --baseline saved.json --tolerance 1e9
expect 0 "^glu_backward .*8 x 40 " "${measure[@]}" --baseline now.json --tolerance 1e9
grep -q '^0 of 2 kernels slower' out || fail "no comparison below the table"
sed 's/"us_least": .*/"us_least": 0.0001,/' now.json >was_faster.json
expect 1 '2 of 2 kernels slower' "${measure[@]}" --baseline was_faster.json --csv
grep -q '^"glu_forward","8 x 40",' out || fail "no line of CSV"
grep -q slower out && fail "the comparison is within the CSV"
expect 1 '^fsdp: now.json: dtype: expected "bf16"' "${measure[@]}" --baseline now.json --dtype bf16
expect 1 '^fsdp: none.json' "${measure[@]}" --baseline none.json
expect 1 '^fsdp: --filter: no kernel has "swigglu"' "${kernels[@]}" --filter swigglu
expect 1 '^fsdp: --shape: expected NAME=NUMBER' "${kernels[@]}" --shape hiden=3
expect 1 '^fsdp: .*gpt9' "${kernels[@]}" --model gpt9
expect 2 'unknown command "bench walk"; expected step, init, sharding, kernels, comm' "$FSDP" bench walk

# ---- init ----------------------------------------------------------------------------------------
init=("$FSDP" bench init --preset gpt2-124m --threads 1)
expect 0 '^initial values  *[0-9.]* s, [0-9.]* million a second on each rank$' "${init[@]}" --local-ranks 2
hash=$(awk '/^hash / { print $2 }' out)
[ "${#hash}" = 16 ] || fail "init: no hash: $(cat out)"
expect 0 "\"hash\":\"$hash\"" "${init[@]}" --local-ranks 3 --json
expect 1 'gpt9' "$FSDP" bench init --preset gpt9
[ -z "${MPIRUN:-}" ] || expect 0 "^hash  *$hash\$" $MPIRUN -n 2 "${init[@]}" --strategy shard_grad_op

# ---- comm ----------------------------------------------------------------------------------------
small=(--min-bytes 3000 --max-bytes 3000 --rounds 1 --calls 1 --threads 1)
comm=("$FSDP" bench comm "${small[@]}")
expect 0 '^mean busbw [0-9.]* GB/s' "${comm[@]}" --local-ranks 3 --expect-ranks 3
[ "$(grep -c ' 0$' out)" = 8 ] || { fail "not 4 collectives of 2 dtypes without a wrong element"; cat out; }
expect 0 '"collective":"all_reduce","op":"max","dtype":"i32","buffer":"plain","transport":"threads"' \
  "${comm[@]}" --local-ranks 2 --collectives all_reduce --ops max --dtypes i32 --buffers plain --json
expect 44 '^fsdp: bench comm: expected 4 ranks, got 2' "${comm[@]}" --local-ranks 2 --expect-ranks 4
expect 44 '^fsdp: bench comm: one rank has nobody to communicate with' "${comm[@]}"
expect 46 '^fsdp: bench comm: mean busbw: expected at least 1000000000 GB/s' "${comm[@]}" --local-ranks 2 --min-busbw 1e9
expect 46 'expected at least 5 GB/s' "${comm[@]}" --local-ranks 2 --min-busbw
expect 1 'transport mpi: these ranks communicate by threads' "${comm[@]}" --local-ranks 2 --transport mpi
# The link goes into a file of rates, and nothing else of the file changes.
timeout 120 "$FSDP" explain --model gpt2-124m --world 2 --save-rates rates.json >out 2>err || { fail "no file of rates"; cat err; }
cp rates.json before.json
link=("$FSDP" bench comm --local-ranks 2 --threads 1 --min-bytes 64KiB --max-bytes 16MiB --rounds 3)
expect 0 '^rates.json: inside_node: latency [0-9.]* us, [0-9.]* GB/s' "${link[@]}" --update-rates rates.json
cmp -s rates.json before.json && fail "--update-rates changed nothing"
diff before.json rates.json | grep '^[<>]' | grep -vE 'latency_us|bytes_per_s' && fail "--update-rates changed more than the link"
expect 0 'step' "$FSDP" explain --model gpt2-124m --world 2 --rates rates.json
expect 1 '^fsdp: none.json' "${link[@]}" --update-rates none.json
expect 1 'link: expected collectives of several sizes' "${comm[@]}" --local-ranks 2 --collectives broadcast --update-rates rates.json
# What was recorded is held to; only the cases that are measured are written.
gate=("$FSDP" bench comm --threads 1 --collectives all_gather --dtypes f32 --min-bytes 4KiB --max-bytes 4MiB --factor 1024)
gate+=(--rounds 1 --calls 1 --gate gate.json)
expect 1 'gate.json: no such file; --update creates it' "${gate[@]}" --local-ranks 3
expect 0 '^gate.json: 2 cases of 2 recorded' "${gate[@]}" --local-ranks 3 --update
cp gate.json three.json
expect 44 'gate.json: no records exist for 2 ranks on 1 host by threads, memory of cpu \(.*\); recorded: 3 ranks on 1 host' \
  "${gate[@]}" --local-ranks 2
expect 0 '^gate.json: 2 cases of 4 recorded' "${gate[@]}" --local-ranks 2 --update
[ "$(grep -cxFf three.json gate.json)" -ge 3 ] || fail "gate: other cases are gone: $(cat gate.json)"
sed -Ei 's/(gb_per_s":)[^,]*/\11e-9/; s/(us":)[^}]*/\11e9/' gate.json # any machine is better
expect 0 '"gate":"passed","collective":"all_gather"' "${gate[@]}" --local-ranks 3 --gate-share 0.5 --json
expect 44 'gate.json: no record of all_gather f32 plain of 4092 bytes for 3 ranks' "${gate[@]}" --local-ranks 3 --buffers plain
expect 0 '^gate.json: 2 cases passed' "${gate[@]}" --local-ranks 3
expect 44 'one rank has nobody to communicate with' "${gate[@]}" --update
# A cluster that was a thousand times as fast, and less: every pair is slow.
sed 's/busbw_gb_per_s":/&9999/' three.json >gate.json
expect 46 '^fsdp: bench comm: gate.json: all_gather f32 of [0-9]* bytes: expected at least .* GB/s on the bus .* at best of 3; too slow: [12] of 2 cases; slow pairs, 3 of 3: ranks [0-2] ' \
  "${gate[@]}" --local-ranks 3
[ "$(grep -cE '^ranks [01] \(.*\) and [12] \(.*\) .* GB/s  below ' out)" = 3 ] || { fail "gate: not three slow pairs"; cat out; }
expect 46 '^{"pair":\[\[[01]\],\[[12]\]\],"hosts":' "${gate[@]}" --local-ranks 3 --json
head -c 100 three.json >gate.json
for update in "" --update; do
  expect 1 '^fsdp: gate.json:[0-9]*: malformed JSON' "${gate[@]}" --local-ranks 3 $update
done
[ "$(wc -c <gate.json)" = 100 ] || fail "gate: a file that is damaged was replaced"
expect 0 '^ranks 0 \(.*\) and 1 \(.*\) .* GB/s' "${comm[@]}" --local-ranks 2 --pairs
expect 46 'slow pairs, 3 of 3: ranks' "${comm[@]}" --local-ranks 3 --pairs --min-busbw 1e9
expect 2 'pairs excludes --gate|--gate excludes --pairs' "${gate[@]}" --local-ranks 2 --pairs
# A suite: with the sizes given here, else 32 MiB to 1 GiB. A lone rank leaves no folder.
suite=("$FSDP" bench comm --min-bytes 3000 --max-bytes 12000 --threads 1 --suite)
expect 0 '^mean busbw' "${suite[@]}" suite --local-ranks 2
[ "$(wc -l <suite/results.csv)" = 13 ] || fail "suite: not 4 collectives of 3 sizes: $(cat suite/results.csv)"
# nccl-tests' formula, again: bytes / time, of all_reduce x 2 (n - 1) / n, of gathers x (n - 1) / n
awk -F, 'NR > 1 { factor = $1 == "all_reduce" || $1 == "broadcast" ? 1 : 0.5; busbw = $6 / $8 / 1000 * factor
  if (busbw - $11 > 0.01 + 0.05 * busbw || $11 - busbw > 0.01 + 0.05 * busbw || $12 != 0) exit 1 }' suite/results.csv ||
  fail "suite: busbw is not that of the formula: $(cat suite/results.csv)"
for line in '^date: 20[0-9-]*T[0-9:]*Z$' '^commit: ' '^ranks: 2$' '^transport: threads$' '^rank 1: '; do
  grep -q "$line" suite/meta.txt || fail "suite: no $line in $(cat suite/meta.txt)"
done
grep -q '^# Avg bus bandwidth    : [0-9.]*$' suite/summary.txt && grep -q '^passed$' suite/summary.txt &&
  grep -q '^ *12000 .*[0-9]$' suite/summary.txt || fail "suite: $(cat suite/summary.txt)"
expect 1 'suite suite: has the results of another suite' "${suite[@]}" suite --local-ranks 2
expect 44 'one rank has nobody to communicate with' "${suite[@]}" lone
[ -e lone ] && fail "suite: a lone rank leaves a folder"
expect 46 'mean busbw: expected' "${suite[@]}" slow --local-ranks 2 --min-busbw 1e9
grep -q '^status 46: mean busbw' slow/summary.txt || fail "suite: $(cat slow/summary.txt)"
# Processes that a launcher started and that do not find each other: each would measure itself alone.
expect 1 'the launcher started 8 processes' env SLURM_STEP_NUM_TASKS=8 SLURM_PROCID=0 "${suite[@]}" alone
[ -e alone ] && fail "suite: lone processes of a launcher leave a folder"
if [ -n "${MPIRUN:-}" ]; then
  for transport in shared mpi; do
    expect 0 "^2 ranks, $transport" $MPIRUN -n 2 "${comm[@]}" --transport $transport
  done
  expect 44 'expected 3 ranks, got 2' $MPIRUN -n 2 "${comm[@]}" --expect-ranks 3
  expect 46 'expected at least 1000000000' $MPIRUN -n 2 "${comm[@]}" --min-busbw 1e9
fi

[ "$failed" = 0 ] && echo "bench: all is well"
exit "$failed"
