// NVTX (NVIDIA Tools Extension): named ranges of a thread, which a profiler shows. Its headers find
// the profiler that the program was started by; without one a call is a look at a pointer. Where
// the headers are missing, nvtx_absent.cpp does nothing. Read next: profiler_ranges.h.
#pragma once

namespace fsdp::cuda::nvtx {

// Of the calling thread. What was pushed last is popped first.
void push(const char* name);
void pop();

}  // namespace fsdp::cuda::nvtx
