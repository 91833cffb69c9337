// Spans of the trace from CUDA events.
#include "kernels/cuda/op_clock.h"

#include "kernels/cuda/check.h"

namespace fsdp::cuda {

OpClock::OpClock(Trace& trace, CudaStream& stream, int device)
    : trace_(&trace),
      device_(device),
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

// An error costs the trace a span, and is told by the stream's next call: it stands in a
// destructor.
void OpClock::finish(CudaStream& stream, Span span) try {
  std::shared_ptr<CUevent_st> end = events_->take();
  CUDA_CHECK(cudaEventRecord(end.get(), stream.handle()));
  stream.mirror().enqueue_control([clock = *this, span = std::move(span), end]() mutable {
    (void)cudaSetDevice(clock.device_);
    if (cudaEventSynchronize(end.get()) != cudaSuccess) return;  // the next call tells why
    const auto between = [](cudaEvent_t from, cudaEvent_t to) {
      float ms = 0;
      (void)cudaEventElapsedTime(&ms, from, to);
      return static_cast<int64_t>(static_cast<double>(ms) * 1e6);
    };
    span.event.begin_ns = clock.zero_ns_ + between(clock.zero_.get(), span.begin.get());
    // Not from zero: a float of milliseconds loses the microseconds within minutes.
    span.event.end_ns = span.event.begin_ns + between(span.begin.get(), end.get());
    clock.trace_->record(std::move(span.event));
  });
} catch (const Error&) {
}

}  // namespace fsdp::cuda
