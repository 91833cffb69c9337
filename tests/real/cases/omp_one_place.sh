# OMP_PLACES with one core
# why: a single place is what the user wants, and costs the other cores
# source: https://gcc.gnu.org/onlinedocs/libgomp/OMP_005fPLACES.html
# before: one thread, without a word
# expect: 1 of
# expect: status 0
model model
core=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*\([0-9]*\).*/\1/p' /proc/self/status)
OMP_PLACES="{$core}" "$FSDP" generate model --ids 5,6 --tokens 1
status=$?
[ "$(nproc)" != 1 ] || echo "1 of 1 cores"  # nothing is left out: nothing is said
echo "status $status"
