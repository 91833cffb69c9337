// Times of what ran on the GPU, for the trace: two CUDA events around every operation, read by the
// stream's mirror once the second has passed.
#pragma once

#include <memory>
#include <string_view>

#include <cuda_runtime_api.h>

#include "core/trace.h"
#include "kernels/cuda/stream.h"

namespace fsdp::cuda {

class OpClock {
 public:
  // Waits for `stream`, to tie the clock of the GPU to the host's.
  OpClock(Trace& trace, CudaStream& stream, int device);

  struct Span {
    std::shared_ptr<CUevent_st> begin;
    TraceEvent event;  // with everything but the two times
  };
  Span start(CudaStream& stream, std::string_view name, std::string scope, int64_t bytes);
  void finish(CudaStream& stream, Span span);

 private:
  Trace* trace_;
  int device_;
  std::shared_ptr<EventPool> events_;  // with timing
  std::shared_ptr<CUevent_st> zero_;
  int64_t zero_ns_ = 0;
};

}  // namespace fsdp::cuda
