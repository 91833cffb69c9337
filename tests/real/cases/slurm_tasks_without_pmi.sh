# srun -n 2 without --mpi=pmix, with an MPI that knows PMIx alone
# why: the processes cannot find each other, and MPI_Init would say so with 25 lines from each
# source: https://github.com/open-mpi/ompi/issues/7949
# before: MPI_Init ended the process with 25 lines
# expect: the launcher started 2 processes, but
# expect: 1 line
# status: 1
model model
host=$(hostname)
env SLURM_JOB_ID=77 SLURM_JOBID=77 SLURM_STEP_ID=0 SLURM_STEPID=0 SLURM_PROCID=0 SLURM_LOCALID=0 \
  SLURM_NTASKS=2 SLURM_STEP_NUM_TASKS=2 SLURM_JOB_NODELIST="$host" SLURM_NODELIST="$host" \
  SLURM_STEP_NODELIST="$host" "$FSDP" generate model --ids 5,6 --tokens 1 >said 2>&1
status=$?
cat said
echo "$(grep -c . said) line"
(exit $status)
