// The headers of NVTX 3, which need no library. The emulator of the tests has its own:
// tests/cuda_emulator/nvtx.cpp.
#include <nvtx3/nvToolsExt.h>

#include "kernels/cuda/nvtx.h"

namespace fsdp::cuda::nvtx {

void push(const char* name) { nvtxRangePushA(name); }
void pop() { nvtxRangePop(); }

}  // namespace fsdp::cuda::nvtx
