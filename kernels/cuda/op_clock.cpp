// Spans of the trace from CUDA events.
#include "kernels/cuda/op_clock.h"

#include "kernels/cuda/check.h"

namespace fsdp::cuda {

OpClock::OpClock(Trace& trace, CudaStream& stream, int device)
    : trace_(&trace),
      events_(std::make_shared<EventPool>(device, cudaEventBlockingSync)),
      zero_(events_->take()) {
  CUDA_CHECK(cudaEventRecord(zero_.get(), stream.handle()));
  CUDA_CHECK(cudaEventSynchronize(zero_.get()));
  zero_ns_ = trace_clock_ns();
}

OpClock::Span OpClock::start(CudaStream& stream, std::string_view name, std::string scope,
                             int64_t bytes) {
  Span span{events_->take(),
            {.name = std::string(name),
             .scope = std::move(scope),
             .lane = stream.name(),
             .enqueued_ns = trace_clock_ns(),
             .bytes = bytes,
             .sequence = trace_->next_sequence()}};
  CUDA_CHECK(cudaEventRecord(span.begin.get(), stream.handle()));
  return span;
}

void OpClock::finish(CudaStream& stream, Span span) {
  std::shared_ptr<CUevent_st> end = events_->take();
  CUDA_CHECK(cudaEventRecord(end.get(), stream.handle()));
  stream.mirror().enqueue_control(
      [trace = trace_, zero = zero_, zero_ns = zero_ns_, span = std::move(span), end]() mutable {
        const auto since_zero = [&](cudaEvent_t event) {
          float ms = 0;
          (void)cudaEventElapsedTime(&ms, zero.get(), event);
          return zero_ns + static_cast<int64_t>(static_cast<double>(ms) * 1e6);
        };
        if (cudaEventSynchronize(end.get()) != cudaSuccess) return;  // the next call tells why
        span.event.begin_ns = since_zero(span.begin.get());
        span.event.end_ns = since_zero(end.get());
        trace->record(std::move(span.event));
      });
}

}  // namespace fsdp::cuda
