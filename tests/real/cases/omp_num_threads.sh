# OMP_NUM_THREADS with white space, of Kubernetes, and words
# why: OpenMP allows white space; the OpenMP library and PyTorch warn of the rest and go on
# source: https://github.com/intel/BigDL/issues/2842
# before: expected a number from 1 to 1024
# expect: OMP_NUM_THREADS=1: 1 thread a rank
# expect: warning: OMP_NUM_THREADS=1500m: expected a number from 1 to 1024, taken as 1
# expect: warning: OMP_NUM_THREADS=all: expected a number from 1 to 1024, it has no effect
# expect: 3 of 3
# never: libgomp
model model
good=0
for threads in '1 ' 1500m all; do
  OMP_NUM_THREADS=$threads "$FSDP" generate model --ids 5,6 --tokens 1 && good=$((good + 1))
done
echo "$good of 3"
