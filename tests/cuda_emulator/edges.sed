# Makes the waits of a host source places that the emulator can leave out (edges.h): statements that
# end in a call of a function of ours that waits, and the driver's, of which only a pointer is
# known. CudaTests.cmake compiles the result in the place of the source; lines keep their numbers. A
# wait whose name and semicolon are on different lines is not seen. Run with sed -E.
/^ *\/\//! s/^( +)(.*\b(wait|synchronize|block|follow|gate|meet_hosts)\([^;]*\);.*)$/\1if (FSDP_KEPT(\3)) \2/
s/^( +(.*= )?)wait_value\(/\1FSDP_UNLESS_LEFT_OUT(wait_value)(/
