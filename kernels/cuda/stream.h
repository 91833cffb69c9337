// CUDA streams and events, and what ties them to the host.
//
// [Note: the host mirror] Every CudaStream has a mirror: a stream of the CPU backend whose worker
// runs host code in the order of the CUDA stream. follow() makes the mirror wait for what the CUDA
// stream has been given so far; gate() makes the CUDA stream wait for what the mirror has been
// given so far, through a counter in pinned memory that the worker raises and the GPU waits on
// (cuStreamWaitValue32). Not cudaLaunchHostFunc: its callbacks share one thread, and a collective
// that blocks in one stream would hold up the others.
//
// [Note: poison on the GPU] A host task that throws poisons the mirror (kernels/cpu/stream.h):
// later host tasks are skipped, gates still open, kernels run on whatever is there. Events carry an
// event of the mirror, so the error travels along edges and a host wait rethrows it.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>

#include "kernels/cpu/stream.h"
#include "kernels/cuda/cuda_backend.h"

namespace fsdp::cuda {

// CUDA events of one device, used again and again.
class EventPool : public std::enable_shared_from_this<EventPool> {
 public:
  EventPool(int device, unsigned flags) : device_(device), flags_(flags) {}
  ~EventPool();
  std::shared_ptr<CUevent_st> take();  // goes back by itself
  int device() const { return device_; }

 private:
  int device_;
  unsigned flags_;  // of cudaEventCreateWithFlags
  std::mutex mutex_;
  std::vector<cudaEvent_t> free_;  // as many as were in use at once
};

class CudaEvent final : public Event {
 public:
  // `mirrored`: of the mirror, null if it takes no part.
  CudaEvent(std::shared_ptr<CUevent_st> event, int device, std::shared_ptr<cpu::CpuEvent> mirrored)
      : event_(std::move(event)), device_(device), mirrored_(std::move(mirrored)) {}

  void wait() override;
  bool ready() const override;
  cudaEvent_t handle() const { return event_.get(); }
  const std::shared_ptr<cpu::CpuEvent>& mirrored() const { return mirrored_; }

 private:
  std::shared_ptr<CUevent_st> event_;
  int device_;
  std::shared_ptr<cpu::CpuEvent> mirrored_;
};

class CudaStream final : public Stream {
 public:
  // `mirror` is owned when `owned_mirror` is given (it is the same stream).
  CudaStream(CudaBackend& backend, std::string name, std::shared_ptr<EventPool> events,
             int priority, cpu::CpuStream& mirror, std::unique_ptr<Stream> owned_mirror);
  ~CudaStream() override;  // waits for everything

  cudaStream_t handle() const { return handle_; }
  void* native_handle() const override { return handle_; }
  cpu::CpuStream& mirror() { return mirror_; }
  std::shared_ptr<CudaEvent> record();
  void wait(const EventPtr& event);
  void synchronize();
  void follow();  // see [Note: the host mirror]
  void gate();

 private:
  std::shared_ptr<CUevent_st> mark();  // a CUDA event at the end of the stream

  cpu::CpuStream& mirror_;
  std::unique_ptr<Stream> owned_mirror_;
  std::shared_ptr<EventPool> events_;
  cudaStream_t handle_ = nullptr;
  uint32_t* opened_ = nullptr;  // pinned: the number of the last gate that is open
  uint32_t gates_ = 0;
};

}  // namespace fsdp::cuda
