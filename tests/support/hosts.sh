# Several hosts on this machine, to be sourced after e2e.sh: network namespaces with names and /dev/shm of their
# own, whose cards eth0 and eth1 two switches join. Not here: Slurm's nodes.
#   need_hosts           ends the script as skipped where they cannot be made, and says why
#   make_hosts N         ${hosts[i]}: their names
#   on HOST command...   runs there; the file boot.HOST of $scratch, if there is one, is sourced before
#   mpirun_on 2,2 ...    $MPIRUN on the first host, with so many ranks on each; Open MPI 4, or 5 (PRRTE)
#   cut HOST, mend HOST  takes the cable out of all its cards, and puts it back
#   crash HOST           power off: no card and no process from one moment to the next
#   left [HOST...]       processes there, of all hosts
#   sent HOST CARD       bytes
hosts=()
need_hosts() {
  local problem=
  if [ -z "${MPIRUN:-}" ]; then problem="no MPI"
  elif ! $MPIRUN --version 2>&1 | grep -qE '\((Open MPI|OpenRTE)\) [45]'; then problem="neither Open MPI 4 nor 5"
  elif ! command -v ip >/dev/null; then problem="no ip (iproute2)"
  elif ! unshare -um mount -t tmpfs none /dev/shm 2>/dev/null; then problem="not allowed to give a namespace a host name and a /dev/shm"
  elif ! make_switch; then problem="not allowed to make network namespaces and bridges"
  fi
  [ -z "$problem" ] || { echo "[SKIP] two hosts: $problem"; exit 77; }
}
switch=fsdp$$s
make_switch() {
  trap clean_hosts EXIT
  { ip netns add $switch && ip -n $switch link add br0 type bridge && ip -n $switch link add br1 type bridge &&
    ip -n $switch link set br0 up && ip -n $switch link set br1 up; } 2>/dev/null
}
clean_hosts() {
  local host
  for host in "${hosts[@]}"; do ip netns pids "$host" 2>/dev/null | xargs -r kill -9; done
  for host in "${hosts[@]}" $switch; do ip netns del "$host" 2>/dev/null; done
  rm -rf "$scratch"
}
make_hosts() {
  local i card host
  for ((i = 1; i <= $1; i++)); do
    host=fsdp$$$(printf "\\$(printf %o $((96 + i)))")  # a, b, ...
    hosts+=("$host")
    ip netns add "$host"
    ip -n "$host" link set lo up
    for card in 0 1; do
      ip -n $switch link add "h$i-$card" type veth peer name eth$card netns "$host"
      ip -n $switch link set "h$i-$card" master br$card up
      ip -n "$host" addr add "10.77.$card.$i/24" dev eth$card
      ip -n "$host" link set eth$card up
    done
    echo "10.77.0.$i $host" >>addresses
  done
  # What mpirun calls instead of ssh, with an address; on() has a name. As ssh it learns nothing of a host whose
  # processes are killed all at once.
  cat >agent <<AGENT
#!/bin/bash
cd $scratch
named=\$(sed -n "s/^\$1 //p" addresses)
host=\${named:-\$1}
shift
ip netns exec \$host unshare -u bash -c 'hostname \$0; mount -t tmpfs none /dev/shm
[ ! -e boot.\$0 ] || . ./boot.\$0; eval "\$1"' \$host "\$*"
status=\$?
while [ -n "\$named" ] && [ \$status = 137 ] && kill -0 \$PPID 2>/dev/null; do sleep 0.2; done
exit \$status
AGENT
  chmod +x agent
  mkdir tmp
  # All hosts share these cores: a rank of Open MPI 5 that waits has to sleep, not to look again and again.
  export OMPI_MCA_threads_pthreads_yield_strategy=nanosleep
  export TMPDIR=$scratch/tmp OMPI_MCA_plm_rsh_agent=$scratch/agent PRTE_MCA_plm_ssh_agent=$scratch/agent
}
on() { local host=$1; shift; ./agent "$host" "exec $(printf '%q ' "$@")"; }
mpirun_on() {
  local at= i=0 ranks=${1//,/ } all=0 each; shift
  for each in $ranks; do
    i=$((i + 1)) all=$((all + each)) at=$at,10.77.0.$i:$each
  done
  on "${hosts[0]}" $MPIRUN --host "${at#,}" -n $all "$@"
}
set_cards() { local card; for card in eth0 eth1; do ip -n "$1" link set $card "$2"; done; }
cut() { set_cards "$1" down; }
mend() { set_cards "$1" up; }
crash() { cut "$1"; ip netns pids "$1" | xargs -r kill -9; }
left() { local host; for host in "${@:-${hosts[@]}}"; do ip netns pids "$host"; done; }
sent() { ip netns exec "$1" cat "/sys/class/net/$2/statistics/tx_bytes"; }
