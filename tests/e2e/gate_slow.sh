#!/usr/bin/env bash
# fsdp bench comm --gate between three hosts: a slow link between two of them, and a host that is slow to all, are
# found and named, and a link that is well again passes. A run on these hosts has a file of samples for each.
# Three network namespaces with names of their own, joined by a bridge, are the hosts.
# Environment: FSDP the program, MPIRUN how to start processes (empty: no MPI).
# Requirements: S1.20, S3.11, S3.16.
source "$(dirname "$0")/../support/e2e.sh"

# ---- three hosts: ${hosts[0]}, ... with $net.0.1, ... on eth0 ----------------------------------------
source "$(dirname "$0")/../support/hosts.sh"
need_hosts
command -v tc >/dev/null || { echo "[SKIP] two hosts: no tc (iproute2)"; exit 77; }
make_hosts 3
net=10.77

# ---- links that are slow ---------------------------------------------------------------------------
rate=50mbit # 0.006 GB/s
# each_card HOST tc-object command ...: of every card of the host, CARD being its number
each_card() {
  local card
  for card in $(ip -n "${hosts[$1]}" -br link | sed -n 's/^eth\([0-9]\).*/\1/p'); do
    ip netns exec "${hosts[$1]}" tc "$2" "$3" dev "eth$card" ${4//CARD/$card} 2>>tc.log || { fail "tc: ${*:2}"; cat tc.log; }
  done
}
# What one host sends to one other.
slow_to() {
  each_card "$1" qdisc add 'root handle 1: htb default 1'
  each_card "$1" class add 'parent 1: classid 1:1 htb rate 100gbit'
  each_card "$1" class add "parent 1: classid 1:2 htb rate $rate burst 64kb"
  each_card "$1" filter add "parent 1: protocol ip u32 match ip dst $net.CARD.$(($2 + 1)) flowid 1:2"
}
slow_to_all() { each_card "$1" qdisc add "root tbf rate $rate burst 64kb latency 100ms"; }
well() { each_card "$1" qdisc del root; }

# expect STATUS RANKS 'regular expression' [option...]: of bench comm, in stdout or stderr
expect() {
  local status=$1 ranks=$2 expected=$3 got
  shift 3
  mpirun_on "$ranks" "$FSDP" bench comm --threads 1 --collectives all_reduce --dtypes f32 --min-bytes 4KiB \
    --max-bytes 1MiB --factor 256 --rounds 3 --calls 1 "$@" >out 2>err </dev/null
  got=$?
  [ "$got" = "$status" ] || { fail "status $got instead of $status: $ranks $*"; cat out err; }
  grep -qE -- "$expected" out err || { fail "no '$expected' from: $ranks $*"; cat out err; }
}
a="0 \(${hosts[0]}\)" b="1 \(${hosts[1]}\)" c="2 \(${hosts[2]}\)"
# The machine may be busy with something else: a fifth of what was recorded is enough here.
gate=(--gate gate.json --gate-share 0.2)
expect 0 1,1,1 '^gate.json: 2 cases of 2 recorded' --gate gate.json --update
expect 0 2,2,2 '^gate.json: 2 cases of 4 recorded' --gate gate.json --update
expect 0 1,1,1 '^mean busbw' "${gate[@]}"
expect 0 2,2,2 '^mean busbw' "${gate[@]}"
expect 44 3,2,1 'no records exist for 6 ranks on 3 hosts \(at most 3 on one\)' "${gate[@]}"
expect 44 1,1 'no records exist for 2 ranks on 2 hosts .*recorded: 3 ranks on 3 hosts' "${gate[@]}"

slow_to 0 2
slow_to 2 0
expect 46 1,1,1 "GB/s on the bus .* slow pairs, 1 of 3: ranks $a and $c: 0.00[0-9]* GB/s\$" "${gate[@]}"
expect 46 1,1,1 "slow pairs, 1 of 3: ranks $a and $c: 0.00[0-9]* GB/s\$" --pairs
hosts_a_c="hosts ${hosts[0]} \(ranks 0, 1\) and ${hosts[2]} \(ranks 4, 5\)"
expect 46 2,2,2 "GB/s on the bus .* slow pairs, 1 of 3: $hosts_a_c: 0.00[0-9]* GB/s" "${gate[@]}"
expect 46 2,2,2 "^$hosts_a_c .*far below the median" --pairs
grep -qE "slow pairs, 1 of 3: $hosts_a_c: " err || { fail "not the hosts"; cat out err; }
[ "$(grep -cE '^ranks [0145] ' out)" = 6 ] || { fail "not the pairs of the ranks of slow hosts"; cat out; }
well 0
well 2
expect 0 1,1,1 '^mean busbw' "${gate[@]}"
expect 0 2,2,2 '^mean busbw' "${gate[@]}"

slow_to_all 2
expect 46 1,1,1 "slow pairs, 2 of 3: .*; rank $c is in all of them\$" "${gate[@]}"
well 2

# ---- samples of each host --------------------------------------------------------------------------
for i in {1..60}; do echo "a line of text, number $i"; done >text.txt
mpirun_on 2,2,2 "$FSDP" train --threads 1 --set data.train=text.txt --set data.sequence_length=16 --set train.batch=6 \
  --set model.model_type=llama --set model.hidden_size=64 --set model.layers=2 --set model.heads=2 \
  --set train.steps=200 --set runtime.monitor_s=0.2 --set runtime.run_dir=run >log 2>&1 </dev/null || { fail "train"; cat log; }
for host in "${hosts[@]}"; do
  awk -F, 'NR == 1 { for (i = 1; i <= NF; ++i) at[$i] = i; next }
    $at["net_sent_MiB_per_s"] > 0 && $at["net_received_MiB_per_s"] > 0 && $at["ram_available_MiB"] > 0 { ++good }
    END { exit !good }' "run/monitor.host.$host.csv" || fail "no traffic of $host: $(cat run/monitor.host.$host.csv)"
done
[ "$(ls run/monitor.host.*.csv run/monitor.rank*.csv | wc -l)" = 9 ] || fail "not one file a host: $(ls run)"

[ "$failed" = 0 ] && echo "gate: all is well"
exit "$failed"
