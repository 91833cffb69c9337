// Methods of the contract that have no kernel on the GPU yet: each says so by its name.
#include "kernels/cuda/cuda_backend.h"

namespace fsdp::cuda {
namespace {

[[noreturn]] void missing(const char* op) {
  fail("[{}] the CUDA backend has no kernel for it yet", op);
}

}  // namespace

void CudaBackend::attention_forward(Stream&, const AttentionForwardArgs&) {
  missing("attention_forward");
}
void CudaBackend::attention_backward(Stream&, const AttentionBackwardArgs&) {
  missing("attention_backward");
}

}  // namespace fsdp::cuda
