// Stands in for kernels/cuda/nvtx_library.cpp where the headers of NVTX were not found.
#include "kernels/cuda/nvtx.h"

namespace fsdp::cuda::nvtx {

void push(const char*) {}
void pop() {}

}  // namespace fsdp::cuda::nvtx
