#!/usr/bin/env bash
# fsdp doctor: a healthy host; two hosts in one table; five planted faults, each with the line that mends it:
# memlock, a small /dev/shm, open files, another commit on one host, a folder that is not shared.
# Hosts are host names of one machine's processes, with their own mounts.
# Environment: FSDP the program, MPIRUN how to start processes (empty: no MPI).
# Requirements: S1.23.
source "$(dirname "$0")/../support/e2e.sh"
mkdir shared
# says LOG LINE: a whole line of it, as an extended regular expression
says() { grep -qE "^$2\$" "$1" || { fail "$1: no line $2"; cat "$1"; }; }
# status LOG WANTED command ...
status() {
  local log=$1 wanted=$2 status; shift 2
  "$@" >"$log" 2>&1 </dev/null
  status=$?
  [ "$status" = "$wanted" ] || { fail "$log: status $status instead of $wanted"; cat "$log"; }
}

status healthy.log 0 "$FSDP" doctor --folder shared --local-ranks 2
says healthy.log '✓ ranks          2'
says healthy.log '✓ GPUs           .*'
says healthy.log '✓ folder         .*/shared \(.*\)'
says healthy.log '✓ folder lock    respected'
says healthy.log '1 host: [0-9]+ ✓  [0-9]+ !  0 ✗'
[ -z "$(ls -A shared)" ] || fail "files are left in the folder: $(ls -A shared)"
status expected.log 1 "$FSDP" doctor --folder shared --expect ranks=1,hosts=2 --json
! command -v python3 >/dev/null || python3 - expected.log <<'PY' || fail "--json: another form"
import json, sys
(host,) = json.load(open(sys.argv[1]))["hosts"]
for check in host["checks"]:
    assert list(check) == ["name", "state", "value", "fix"], check
    assert (check["state"] == "ok") == (check["fix"] == ""), check
assert [c["value"] for c in host["checks"] if c["state"] == "fail"] == ["1; expected hosts=2"], host
PY
(mkdir gone && cd gone && rmdir ../gone && status ../gone.log 1 "$FSDP" doctor; exit "$failed") || failed=1
says gone.log '✗ folder         .*No such file or directory.*'
# A launcher that hangs has a row of its own, and the rest of the table comes.
mkdir hangs; printf '#!/bin/sh\nexec sleep 60\n' >hangs/mpirun; chmod +x hangs/mpirun
if [ -n "${MPIRUN:-}" ]; then
  PATH=$PWD/hangs:$PATH status hangs.log 1 "$FSDP" doctor --folder shared --limit 2
  says hangs.log '✗ MPI            no answer within 2 s'
  says hangs.log '✓ GPUs           .*'
  says hangs.log '. memory         .*'
fi
# What nvidia-smi says of GPUs, and a folder without room.
mkdir smi
cat >smi/nvidia-smi <<'SMI'
#!/bin/sh
echo '<nvidia_smi_log><gpu id="00000000:3B:00.0"><remapped_rows><remapped_row_pending>Yes</remapped_row_pending></remapped_rows></gpu></nvidia_smi_log>'
SMI
chmod +x smi/nvidia-smi
PATH=$PWD/smi:$PATH status health.log 1 "$FSDP" doctor --folder shared
says health.log '✗ GPU health     GPU 0: its memory waits for a reset to leave out a bad place'
says health.log '    nvidia-smi -r -i 0 .*'
(ulimit -f 100; status room.log 1 "$FSDP" doctor --folder shared; exit "$failed") || failed=1
says room.log '✗ folder         .*File too large'
says room.log '    ulimit -f unlimited .*'
# A container inside a job of Slurm has no srun.
mkdir bare; ln -s "$(command -v sh)" "$(command -v timeout)" bare
SLURM_JOB_ID=7 PATH=$PWD/bare status slurm.log 0 "$FSDP" doctor --folder shared
says slurm.log '✓ srun           none'
status unknown.log 2 "$FSDP" doctor --expect gpu=8
says unknown.log 'fsdp: doctor: --expect: expected one of gpus, ranks, .*, got "gpu" .*'

# The limits of a process.
(ulimit -l 16; ulimit -n 200; status limits.log 1 "$FSDP" doctor --folder shared; exit "$failed") || failed=1
says limits.log "! memlock        16384 bytes, less than Linux's own 8.00 MiB"
says limits.log "    echo '\* - memlock unlimited' >>/etc/security/limits.d/90-fsdp.conf .*"
says limits.log '✗ open files     200; 258 for 1 rank'
says limits.log "    echo '\* - nofile 65536' >>/etc/security/limits.d/90-fsdp.conf .*"

unshare -um true 2>/dev/null || { echo "[SKIP] doctor: not allowed to give processes a host name and mounts"; exit "$failed"; }
# on NAME MOUNTS command ...: on a host of that name, where the shell line MOUNTS has run. Without RDMA cards: two hosts
# need them, and this machine's may lack what they need.
cat >on <<'ON'
#!/bin/sh
exec unshare -um sh -c 'hostname "$0"
  [ ! -d /sys/class/infiniband ] || mount -t tmpfs tmpfs /sys/class/infiniband
  eval "$1"; shift; exec "$@"' "$@"
ON
chmod +x on
status shm.log 1 ./on a 'mount -t tmpfs -o size=1m tmpfs /dev/shm' "$FSDP" doctor --folder shared
says shm.log '✗ /dev/shm       1.00 MiB, 1.00 MiB free; Open MPI maps 4.00 MiB for 1 rank'
says shm.log '    mount -o remount,size=1024M /dev/shm .*'

[ -n "${MPIRUN:-}" ] || { echo "[SKIP] two hosts: no MPI"; exit "$failed"; }
status two.log 0 $MPIRUN -n 1 ./on a true "$FSDP" doctor --folder shared : -n 1 ./on b true "$FSDP" doctor --folder shared
says two.log '✓ hosts          2'
says two.log '✓ folder         .*/shared \(.*\), the same on all hosts'
says two.log '✓ clock          b: [+-][0-9.]+ ms against a, within [0-9.]+ ms'
says two.log '2 hosts: [0-9]+ ✓  [0-9]+ !  0 ✗'

commit=$(sed -nE 's/^✓ program        fsdp .*, commit (.{7}).*/\1/p' healthy.log)
[ "$commit" != unknown ] || { echo "[SKIP] doctor: this program does not know its commit"; exit "$failed"; }
LC_ALL=C sed "s/$commit/fffffff/g" "$FSDP" >other
chmod +x other
status faults.log 1 $MPIRUN -n 1 ./on a true "$FSDP" doctor --folder shared : \
  -n 1 ./on b 'mount -t tmpfs tmpfs shared' ./other doctor --folder shared
says faults.log "✗ program        b: fsdp .*, commit fffffff.*"
says faults.log "✓                a: fsdp .*, commit $commit.*"
says faults.log "    scp a:$FSDP $FSDP"
says faults.log '✗ folder         a: .*/shared: the files of b are missing here'
says faults.log '✗                b: .*/shared: the files of a are missing here'
says faults.log '    fsdp doctor --folder FOLDER   # that all hosts mount; on a this one is .*'
[ -z "$(ls -A shared)" ] || fail "files are left in the folder: $(ls -A shared)"
[ "$failed" = 0 ] && echo "doctor: five faults were found"
exit "$failed"
