# A Slurm of its own on network namespaces as nodes, to be sourced after tests/support/e2e.sh:
#   slurm_start N    nodes n0 to n<N-1>, slurmctld on n0; exits 77 with a reason where that cannot be
#   on NODE COMMAND  runs it there, as root, with the node's name as host name
#   slurm_stop       ends all of it; also when the script ends
# Partition main: as many CPUs a node as asked by CPUS (2), shared by jobs. A node that is silent for 5 s is down.
slurm_skip() { echo "[SKIP] Slurm: $*"; exit 77; }
tag=fs$$
on() {
  local node=$1; shift
  nsenter --net=/run/netns/$tag$node unshare -u sh -c 'hostname $0; exec "$@"' "$node" "$@"
}
slurm_node() { on "$1" slurmd -f "$SLURM_CONF" -N "$1"; }
slurm_start() {
  local count=$1 i node program
  for program in slurmctld slurmd munged srun ip nsenter unshare; do
    command -v $program >/dev/null || slurm_skip "no $program"
  done
  [ "$(id -u)" = 0 ] || slurm_skip "namespaces as nodes need root"
  slurm=$scratch/slurm net=10.$((64 + $$ % 128)).$(($$ / 128 % 256))
  mkdir -p "$slurm/state"
  trap 'slurm_stop; rm -rf "$scratch"' EXIT
  ip netns add ${tag}sw 2>/dev/null || slurm_skip "not allowed to make network namespaces"
  ip -n ${tag}sw link add br0 type bridge && ip -n ${tag}sw link set br0 up || slurm_skip "no network bridges"
  for ((i = 0; i < count; ++i)); do
    node=n$i
    ip netns add $tag$node
    ip -n ${tag}sw link add p$node type veth peer name eth0 netns $tag$node
    ip -n ${tag}sw link set p$node master br0 up
    ip -n $tag$node addr add $net.$((i + 1))/24 dev eth0
    ip -n $tag$node link set eth0 up
    ip -n $tag$node link set lo up
    mkdir -p "$slurm/spool.$node" "$slurm/tmp.$node"
  done
  dd if=/dev/urandom of="$slurm/munge.key" bs=128 count=1 2>/dev/null
  chmod 600 "$slurm/munge.key"
  munged --force --key-file="$slurm/munge.key" --socket="$slurm/munge.sock" --pid-file="$slurm/munged.pid" \
    --log-file="$slurm/munged.log" --seed-file="$slurm/munge.seed" || slurm_skip "munged does not start"
  echo CgroupPlugin=cgroup/v1 >"$slurm/cgroup.conf"  # no control groups need to be there
  {
    printf '%s\n' ClusterName=one "SlurmctldHost=n0($net.1)" SlurmUser=root SlurmdUser=root AuthType=auth/munge \
      CredType=cred/munge AuthInfo="socket=$slurm/munge.sock" SlurmctldPort=16817 SlurmdPort=16818 \
      StateSaveLocation="$slurm/state" SlurmdSpoolDir="$slurm/spool.%n" SlurmctldPidFile="$slurm/slurmctld.pid" \
      SlurmdPidFile="$slurm/slurmd.%n.pid" TmpFS="$slurm/tmp.%n" SlurmctldLogFile="$slurm/slurmctld.log" \
      SlurmdLogFile="$slurm/slurmd.%n.log" ProctrackType=proctrack/linuxproc TaskPlugin=task/none \
      JobAcctGatherType=jobacct_gather/none SelectType=select/cons_tres SelectTypeParameters=CR_Core \
      SwitchType=switch/none ReturnToService=2 MpiDefault=none SlurmdTimeout=5 SlurmctldTimeout=5 KillWait=5 \
      OverTimeLimit=0 BatchStartTimeout=10 MessageTimeout=5
    for ((i = 0; i < count; ++i)); do
      echo "NodeName=n$i NodeAddr=$net.$((i + 1)) CPUs=${CPUS:-2} RealMemory=1000"
    done
    echo "PartitionName=main Nodes=n[0-$((count - 1))] Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4"
  } >"$slurm/slurm.conf"
  export SLURM_CONF=$slurm/slurm.conf
  on n0 slurmctld -f "$SLURM_CONF"
  for ((i = 0; i < count; ++i)); do slurm_node n$i; done
  for _ in {1..100}; do
    [ "$(on n0 sinfo -h -N -o %T 2>/dev/null | grep -c idle)" = "$count" ] && return
    sleep 0.1
  done
  tail -n 5 "$slurm"/*.log
  slurm_skip "its nodes do not come up"
}
slurm_stop() {
  local namespace
  [ -n "${slurm:-}" ] || return 0
  for namespace in $(ip netns list | grep -o "^$tag\(n[0-9]*\|sw\)\b"); do
    ip netns pids $namespace | xargs -r kill -9
    ip netns del $namespace
  done 2>/dev/null
  [ -s "$slurm/munged.pid" ] && kill "$(cat "$slurm/munged.pid")"
}
# slurm_kill NODE: as by a power failure. slurm_revive NODE
slurm_kill() {
  ip -n $tag$1 link set eth0 down
  ip netns pids $tag$1 | xargs -r kill -9
}
slurm_revive() {
  ip -n $tag$1 link set eth0 up
  rm -f "$slurm/slurmd.$1.pid"
  slurm_node "$1"
}
