# OMP_NUM_THREADS and the places of OpenMP, where fsdp launch mpirun starts ranks on other hosts
# why: mpirun takes only the variables that are named, and they are hidden in this program's own environment
# source: https://www.open-mpi.org/faq/?category=running#mpirun-options
# before: OMP_WAIT_POLICY was named, OMP_NUM_THREADS was not, and the other hosts took all cores
# expect: -x GOMP_CPU_AFFINITY -x KMP_AFFINITY -x OMP_NUM_THREADS -x OMP_PLACES -x OMP_WAIT_POLICY
# expect: GOMP_CPU_AFFINITY=0 1 KMP_AFFINITY=compact OMP_NUM_THREADS=3 OMP_PLACES=cores OMP_WAIT_POLICY=passive
export OMP_NUM_THREADS=3 OMP_WAIT_POLICY=passive OMP_PLACES=cores GOMP_CPU_AFFINITY='0 1' KMP_AFFINITY=compact
"$FSDP" launch mpirun --hosts a:1,b:1 --print -- train | grep -o -e '-x [GKO]*MP_[A-Z_]*' | sort | xargs
# What mpirun itself finds.
mkdir bin
printf '%s\n' '#!/bin/sh' 'env | grep -E "^[GK]?O?MP_" | sort | paste -sd " "' >bin/mpirun
chmod +x bin/mpirun
PATH=$PWD/bin:$PATH "$FSDP" launch mpirun --hosts a:1,b:1 -- train
