// Errors and spans of operations.
#include "kernels/cuda/op.h"

#include "kernels/cuda/check.h"

namespace fsdp::cuda {

Op::Op(CudaBackend& backend, Stream& stream, std::string_view name, int64_t bytes)
    : backend_(backend), stream_(backend.own(stream, name)), name_(name), range_(name) {
  OpClock* const clock = backend.clock();
  if (clock && backend.open_operations() == 0) {
    span_ = clock->start(stream_, name, backend.scope(), bytes);
  }
  ++backend_.open_operations();
}

Op::~Op() {
  --backend_.open_operations();
  if (span_) backend_.clock()->finish(stream_, std::move(*span_));
}

std::string Op::describe() const {
  std::string out(name_);
  for (const Tensor* tensor : tensors_) {
    if (!tensor) continue;
    out += fmt::format(" {} {}", tensor->shape().str(), fsdp::name_of(tensor->dtype()));
  }
  const std::string scope = backend_.scope();
  return scope.empty() ? out : out + " in " + scope;
}

void Op::started(cudaError_t error, std::string_view what, std::source_location at) const {
  if (error == cudaSuccess && backend_.options().synchronous) {
    error = cudaStreamSynchronize(stream_.handle());
  }
  if (error == cudaSuccess) return;
  throw MachineError(fmt::format("[{}] {}: {} ({}:{})", describe(), what, words_of(error),
                                 at.file_name(), at.line()));
}

}  // namespace fsdp::cuda
