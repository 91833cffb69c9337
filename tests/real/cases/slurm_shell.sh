# A shell of srun --pty or salloc, with one task
# why: one process needs no MPI, and this MPI may not know Slurm
# source: https://github.com/open-mpi/ompi/issues/7949
# source: https://github.com/open-mpi/ompi/issues/10286
# before: MPI_Init ended the process with 25 lines: "OMPI was not built with SLURM's PMI support"
# expect: note: the launcher started one process, which runs without MPI
# expect: status 0
# never: PMI support
model model
host=$(hostname)
env SLURM_JOB_ID=77 SLURM_JOBID=77 SLURM_STEP_ID=0 SLURM_STEPID=0 SLURM_PROCID=0 SLURM_LOCALID=0 \
  SLURM_NTASKS=1 SLURM_NPROCS=1 SLURM_STEP_NUM_TASKS=1 SLURM_NNODES=1 SLURM_JOB_NODELIST="$host" \
  SLURM_NODELIST="$host" SLURM_STEP_NODELIST="$host" "$FSDP" generate model --ids 5,6 --tokens 1
echo "status $?"
