#!/usr/bin/env bash
# The network between two hosts goes down: every rank and the launcher end on both, with one report.
# Two network namespaces with names of their own are the hosts.
# Environment: FSDP the program, MPIRUN how to start processes (empty: no MPI).
# Requirements: S3.14.
source "$(dirname "$0")/../support/e2e.sh"
# What a report says of a rank that was in training.
place='step [0-9]+, ((forward|backward), unit (root|blocks\.[01])|optimizer)'
skip() { echo "[SKIP] two hosts: $*"; exit 77; }
[ -n "${MPIRUN:-}" ] || skip "no MPI"
$MPIRUN --version 2>&1 | grep -q 'Open MPI) 4' || skip "not Open MPI 4"
command -v ip >/dev/null || skip "no ip (iproute2)"
a=fsdp$$a b=fsdp$$b net=10.$((64 + $$ % 128)).$(($$ / 128 % 256))
clean() {
  for host in $a $b; do
    ip netns pids "$host" 2>/dev/null | xargs -r kill -9
    ip netns del "$host" 2>/dev/null
  done
  rm -rf "$scratch"
}
trap clean EXIT
{ ip netns add "$a" && ip netns add "$b" && ip link add "v$$a" netns "$a" type veth peer name "v$$b" netns "$b"; } \
  2>/dev/null || skip "not allowed to make network namespaces"
unshare -u true 2>/dev/null || skip "not allowed to give a namespace a host name"
i=1
for host in $a $b; do
  ip -n "$host" addr add "$net.$i/24" dev "v${host#fsdp}"
  ip -n "$host" link set "v${host#fsdp}" up
  ip -n "$host" link set lo up
  i=$((i + 1))
done
cat >agent <<AGENT
#!/bin/bash
host=$b; shift
exec ip netns exec \$host unshare -u bash -c 'hostname \$0; eval "\$*"' \$host "\$@"
AGENT
chmod +x agent
for i in {1..60}; do echo "a line of text, number $i"; done >text.txt
cat >config.yaml <<'YAML'
model: {model_type: llama, hidden_size: 16, layers: 2, heads: 2}
data: {train: text.txt, sequence_length: 16}
train: {steps: 10000000, batch: 4, log_every: 10, schedule: {kind: constant}}
runtime: {run_dir: run, heartbeat_s: 3}
YAML
ip netns exec "$a" unshare -u bash -c 'hostname $0; exec "$@"' "$a" \
  $MPIRUN --host "$net.1:2,$net.2:2" -n 4 --mca plm_rsh_agent "$PWD/agent" \
  "$FSDP" train --config config.yaml --threads 1 >log 2>&1 </dev/null &
for _ in {1..600}; do
  [ "$(cat run/metrics.jsonl 2>/dev/null | wc -l)" -ge 3 ] && break
  sleep 0.1
done
[ -s run/metrics.jsonl ] || { fail "no steps on two hosts"; cat log; }
sleep 1
ip -n "$b" link set "v$$b" down
left() { ip netns pids "$a"; ip netns pids "$b"; }
begin=$SECONDS
while [ -n "$(left)" ] && [ $((SECONDS - begin)) -lt 30 ]; do sleep 0.2; done
[ -z "$(left)" ] || { fail "still running 30 s after the link went down:"; left | xargs -r ps -o pid,args -p; }
grep -qE "^fsdp: ranks 2, 3 \($b\): no sign of life for 3 s: .*last heard of in $place; rank [01] is in $place\$" log || fail "no report"
[ "$(grep -c '^fsdp: rank' log)" = 1 ] || fail "more than one report"
[ "$failed" = 0 ] && echo "two hosts: all gone $((SECONDS - begin)) s after the link went down" || cat log
exit "$failed"
