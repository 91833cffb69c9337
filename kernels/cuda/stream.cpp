// Events, the mirror and the gate. See the notes in stream.h.
#include "kernels/cuda/stream.h"

#include <atomic>

#include <cuda.h>

#include "kernels/cuda/check.h"

namespace fsdp::cuda {
namespace {

// Of the driver: linking it would stop the program from starting where there is none.
using WaitValue = CUresult (*)(CUstream, CUdeviceptr, cuuint32_t, unsigned);

WaitValue find_wait_value() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  CUDA_CHECK(cudaGetDriverEntryPointByVersion("cuStreamWaitValue32", &function, 12000,
                                              cudaEnableDefault, &found));
#else
  CUDA_CHECK(cudaGetDriverEntryPoint("cuStreamWaitValue32", &function, cudaEnableDefault, &found));
#endif
  FSDP_CHECK(function && found == cudaDriverEntryPointSuccess,
             "[cuda] the driver has no cuStreamWaitValue32: expected one for CUDA 12 or newer");
  return reinterpret_cast<WaitValue>(function);
}

}  // namespace

EventPool::~EventPool() {
  for (const cudaEvent_t event : free_) (void)cudaEventDestroy(event);
}

std::shared_ptr<CUevent_st> EventPool::take() {
  cudaEvent_t event = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      event = free_.back();
      free_.pop_back();
    }
  }
  if (!event) CUDA_CHECK(cudaEventCreateWithFlags(&event, flags_));
  return {event, [pool = shared_from_this()](cudaEvent_t done) {
            const std::lock_guard lock(pool->mutex_);
            pool->free_.push_back(done);
          }};
}

void CudaEvent::wait() {
  CUDA_CHECK(cudaSetDevice(device_));  // the waiter may be a worker of another backend
  CUDA_CHECK(cudaEventSynchronize(event_.get()));
  if (mirrored_) mirrored_->wait();
}

bool CudaEvent::ready() const {
  CUDA_CHECK(cudaSetDevice(device_));  // as above
  const cudaError_t state = cudaEventQuery(event_.get());
  if (state == cudaErrorNotReady) {
    (void)cudaGetLastError();  // it is an answer, and not the error of a later call
    return false;
  }
  CUDA_CHECK(state);
  return !mirrored_ || mirrored_->ready();
}

CudaStream::CudaStream(CudaBackend& backend, std::string name, std::shared_ptr<EventPool> events,
                       int priority, cpu::CpuStream& mirror, std::unique_ptr<Stream> owned_mirror)
    : Stream(backend, std::move(name)),
      mirror_(mirror),
      owned_mirror_(std::move(owned_mirror)),
      events_(std::move(events)) {
  CUDA_CHECK(cudaMallocHost(reinterpret_cast<void**>(&opened_), sizeof *opened_));
  *opened_ = 0;
  CUDA_CHECK(cudaStreamCreateWithPriority(&handle_, cudaStreamNonBlocking, priority));
  backend.streams().insert(this);
}

CudaStream::~CudaStream() {
  static_cast<CudaBackend&>(backend()).streams().erase(this);
  (void)cudaStreamSynchronize(handle_);
  mirror_.record()->block();  // nothing there may use what goes now
  (void)cudaStreamDestroy(handle_);
  (void)cudaFreeHost(opened_);
}

std::shared_ptr<CUevent_st> CudaStream::mark() {
  std::shared_ptr<CUevent_st> event = events_->take();
  CUDA_CHECK(cudaEventRecord(event.get(), handle_));
  return event;
}

std::shared_ptr<CudaEvent> CudaStream::record() {
  return std::make_shared<CudaEvent>(mark(), events_->device(), mirror_.record());
}

void CudaStream::wait(const EventPtr& event) {
  if (const auto recorded = std::dynamic_pointer_cast<CudaEvent>(event)) {
    CUDA_CHECK(cudaStreamWaitEvent(handle_, recorded->handle(), 0));
    if (recorded->mirrored()) mirror_.wait(recorded->mirrored());
    return;
  }
  mirror_.wait(event);
  gate();
}

void CudaStream::synchronize() {
  const cudaError_t error = cudaStreamSynchronize(handle_);
  mirror_.synchronize();  // also after an error: it clears the mirror's
  check_call(error, "cudaStreamSynchronize");
}

void CudaStream::follow() {
  mirror_.wait(std::make_shared<CudaEvent>(mark(), events_->device(), nullptr));
}

void CudaStream::gate() {
  static const WaitValue wait_value = find_wait_value();
  const uint32_t number = ++gates_;
  mirror_.enqueue_control([opened = opened_, number] {
    std::atomic_ref(*opened).store(number, std::memory_order_release);
  });
  const CUresult result =
      wait_value(handle_, reinterpret_cast<CUdeviceptr>(opened_), number, CU_STREAM_WAIT_VALUE_GEQ);
  // The driver's numbers are the runtime's (driver_types.h).
  check_call(static_cast<cudaError_t>(result), "cuStreamWaitValue32");
}

}  // namespace fsdp::cuda
