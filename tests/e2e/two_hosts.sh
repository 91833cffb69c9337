#!/usr/bin/env bash
# Two hosts: launch.interface carries what MPI sends, a card that is not there is refused; the network goes down: every
# rank and the launcher end on both hosts, with one report. More that can happen to two hosts: hosts_slow.sh.
# Environment: FSDP the program, MPIRUN how to start processes (empty: no MPI).
# Requirements: S3.13, S3.14.
source "$(dirname "$0")/../support/e2e.sh"
source "$(dirname "$0")/../support/hosts.sh"
# What a report says of a rank that was in training.
place='step [0-9]+, ((forward|backward), unit (root|embedding|head|blocks\.[01])|optimizer)'
need_hosts
make_hosts 2
a=${hosts[0]} b=${hosts[1]}
for i in {1..60}; do echo "a line of text, number $i"; done >text.txt
cat >config.yaml <<'YAML'
model: {model_type: llama, hidden_size: 16, layers: 2, heads: 2}
data: {train: text.txt, sequence_length: 16}
train: {steps: 10000000, batch: 4, log_every: 10, schedule: {kind: constant}}
runtime: {run_dir: run, heartbeat_s: 3}
launch: {interface: eth1}
YAML
mpirun_on 1,1 "$FSDP" train --config config.yaml --interface eth7 >log 2>&1 </dev/null
status=$?
grep -qE "^fsdp: launch.interface: rank 0 on $a has no network card eth7; the host has .*eth0 \(10.77.0.1\), eth1 \(10.77.1.1\)$" log &&
  [ "$status" = 78 ] && ! grep '^fsdp: ' log | grep -vqE "rank (0 on $a|1 on $b) has no network card eth7;" ||
  { fail "eth7: status $status"; cat log; }  # before MPI is there, each rank speaks for itself

mpirun_on 2,2 "$FSDP" train --config config.yaml --threads 1 >log 2>&1 </dev/null &
for _ in {1..600}; do
  [ "$(cat run/metrics.jsonl 2>/dev/null | wc -l)" -ge 3 ] && break
  sleep 0.1
done
[ -s run/metrics.jsonl ] || { fail "no steps on two hosts"; cat log; }
sleep 1
grep -qxF "fsdp: note: network between the hosts: eth1 (10.77.1.1), for MPI, NCCL and the heartbeat" log || fail "no line about the network"
[ "$(sent "$b" eth1)" -gt $((10 * $(sent "$b" eth0))) ] || fail "bytes on eth0: $(sent "$b" eth0), on eth1: $(sent "$b" eth1)"
cut "$b"
begin=$SECONDS
while [ -n "$(left)" ] && [ $((SECONDS - begin)) -lt 30 ]; do sleep 0.2; done
[ -z "$(left)" ] || { fail "still running 30 s after the link went down:"; left | xargs -r ps -o pid,args -p; }
grep -qE "^fsdp: ranks 2, 3 \($b\): no sign of life for 3 s: .*last heard of in $place; rank [01] is in $place\$" log || fail "no report"
[ "$(grep -c '^fsdp: rank' log)" = 1 ] || fail "more than one report"
[ "$failed" = 0 ] && echo "two hosts: all gone $((SECONDS - begin)) s after the link went down" || cat log
exit "$failed"
