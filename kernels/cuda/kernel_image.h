// Whether the program has code for a GPU, asked of its smallest kernel: all are built for the same
// kinds of GPUs.
#pragma once

#include <cuda_runtime_api.h>

namespace fsdp::cuda {

// Of the current device, which gets a context. Loads this kernel alone, unless CUDA_MODULE_LOADING
// is EAGER; PTX is translated.
cudaError_t find_kernel_image();

}  // namespace fsdp::cuda
