# OMP_PLACES with one core
# why: the OpenMP library would bind each team of threads to that core, the streams of all ranks alike
# source: https://gcc.gnu.org/onlinedocs/libgomp/OMP_005fPLACES.html
# before: one thread, without a word
# expect: taskset
# expect: status 0
model model
core=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*\([0-9]*\).*/\1/p' /proc/self/status)
OMP_PLACES="{$core}" "$FSDP" generate model --ids 5,6 --tokens 1
status=$?
echo "status $status"
