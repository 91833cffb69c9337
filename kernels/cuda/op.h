// One operation of the backend as it is being enqueued: its stream, its name for errors, its span
// in the trace, its range in a profiler. Every method of CudaBackend that starts kernels or calls a
// library makes one first.
#pragma once

#include <array>
#include <optional>
#include <source_location>

#include "core/each_tensor.h"
#include "kernels/cuda/op_clock.h"
#include "kernels/cuda/profiler_ranges.h"

namespace fsdp::cuda {

class Op {
 public:
  // Of a kernel (core/kernel_args.h): an error tells the shapes and dtypes of its large tensors.
  template <typename Args>
  Op(CudaBackend& backend, Stream& stream, std::string_view name, const Args& args)
      : Op(backend, stream, name) {
    size_t count = 0;
    for_each_tensor(args, [&](const TensorRole& role, const Tensor& tensor) {
      const bool told = role.is_size || !role.is_small;
      if (told && count < tensors_.size()) tensors_[count++] = &tensor;
    });
  }
  template <typename Args>
  requires requires(const Args& args) { args.name(); }
  Op(CudaBackend& backend, Stream& stream, const Args& args)
      : Op(backend, stream, args.name(), args) {}
  Op(CudaBackend& backend, Stream& stream, std::string_view name, int64_t bytes = 0);
  ~Op();
  Op(const Op&) = delete;
  Op& operator=(const Op&) = delete;

  CudaBackend& backend() const { return backend_; }
  const DeviceInfo& device() const { return backend_.device(); }
  CudaStream& cuda_stream() const { return stream_; }
  cudaStream_t stream() const { return stream_.handle(); }
  std::string_view name() const { return name_; }

  // After something was started: throws with operation, shapes, scope, file and line on an error,
  // and in synchronous mode waits for it.
  void started(cudaError_t error, std::string_view what,
               std::source_location at = std::source_location::current()) const;
  std::string describe() const;  // "add (2, 3) f32, (2, 3) f32 in h.3"

 private:
  CudaBackend& backend_;
  CudaStream& stream_;
  std::string_view name_;
  std::array<const Tensor*, 12> tensors_{};
  OperationRange range_;
  std::optional<OpClock::Span> span_;
};

}  // namespace fsdp::cuda
