# Processes of flux, of jsrun and of another MPI's mpiexec, which this program's MPI does not connect
# why: each of them would see a world of one process and train alone, into the same run directory
# source: https://github.com/flux-framework/flux-core/blob/master/doc/man7/flux-environment.rst
# before: flux run -o pmi=off and aprun trained as many independent runs, without a word
# expect: flux started 2 processes
# expect: jsrun started 2 processes
# expect: mpiexec of PALS started several processes
# expect: refused 3 of 3
# status: 1
model model
refused=0
refuse() { env "$@" "$FSDP" generate model --ids 5,6 --tokens 1 2>&1 || refused=$((refused + 1)); }
refuse FLUX_JOB_SIZE=2 FLUX_TASK_RANK=0
refuse JSM_NAMESPACE_SIZE=2 JSM_NAMESPACE_RANK=0
refuse PALS_RANKID=1
echo "refused $refused of 3"
(exit 1)
