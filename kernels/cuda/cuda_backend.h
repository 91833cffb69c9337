// A GPU as a backend: CUDA streams and events, memory of the driver's stream-ordered pool, one file
// per kernel family. Every stream has a host mirror, a CPU stream that runs what needs the host
// (host tasks, transports, waits for events of another backend) and carries errors.
// f64 is refused by name, except for the scalars that loss and norms add up in.
// Read next: kernels/cuda/stream.h (mirror, gate), kernels/cuda/launch.h (how kernels start).
#pragma once

#include <memory>
#include <set>
#include <string>

#include "core/tensor.h"
#include "core/trace_phases.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_devices.h"
#include "kernels/cuda/profiler_ranges.h"

namespace fsdp::cuda {

class CudaStream;
class CudnnAttention;
class EventPool;
class MatmulPlans;
class OpClock;
class PinnedPool;

class CudaBackend final : public Backend, public PhaseMarks {
 public:
  explicit CudaBackend(const CudaOptions& options = {});
  ~CudaBackend() override;

  std::string_view name() const override { return "cuda"; }
  const CudaOptions& options() const { return options_; }
  const DeviceInfo& device() const { return device_; }

  void* allocate(Stream& stream, size_t bytes, MemoryCategory category) override;
  void release(Stream& stream, void* data, size_t bytes, MemoryCategory category) noexcept override;
  // Either side may be pinned host memory.
  void copy(Stream& stream, void* destination, const void* source, size_t bytes) override;
  void fill_zero(Stream& stream, void* data, size_t bytes) override;
  void copy_from_host(Stream& stream, void* destination, const void* source, size_t bytes) override;
  void copy_to_host(Stream& stream, void* destination, const void* source, size_t bytes) override;
  EventPtr read_later(Stream& stream, void* destination, const void* source, size_t bytes,
                      std::function<void()> arrived) override;
  MemoryLedger& ledger() override { return ledger_; }
  void give_back_unused() override;
  bool host_reaches_memory() const override { return false; }
  std::shared_ptr<std::byte> staging_memory(size_t bytes) override;

  Stream& compute_stream() override;
  std::unique_ptr<Stream> create_stream(std::string name) override;
  EventPtr record(Stream& stream) override;
  void wait(Stream& stream, const EventPtr& event) override;
  void synchronize(Stream& stream) override;
  void host_task(Stream& stream, std::string_view name, int64_t bytes,
                 std::function<void()> task) override;
  void set_scope(std::string scope) override {
    ranges_.enter_unit(scope);
    host_.set_scope(std::move(scope));
  }
  std::string scope() const override { return host_.scope(); }
  void set_trace(Trace* trace) override;
  void begin_phase(const std::string& name) override { ranges_.begin_phase(name); }
  void end_phase() override { ranges_.end_phase(); }

  void run(Stream& stream, Kernel kernel) override;
  // A specialization for each kernel of core/kernel_args.h, in the file of its family.
  template <typename Args>
  void compute(Stream& stream, const Args& args);

  // ---- for the files of this folder ----
  CudaStream& own(Stream& stream, std::string_view op) const;  // Error: of another backend
  OpClock* clock() const { return clock_.get(); }              // null unless traced
  // How many there are now: of those that use others the outer one has the span, or its time would
  // count twice. One host thread enqueues.
  int& open_operations() { return open_operations_; }
  cpu::CpuBackend& host() { return host_; }
  std::set<CudaStream*>& streams() { return streams_; }  // that are there now
  CudnnAttention* cudnn_attention();                     // null: the own kernels do all of it

 private:
  CudaOptions options_;
  DeviceInfo device_;
  MemoryLedger ledger_;
  ProfilerRanges ranges_;
  cpu::CpuBackend host_;  // of the mirrors
  std::shared_ptr<EventPool> events_;
  std::shared_ptr<PinnedPool> pinned_;
  std::unique_ptr<OpClock> clock_;
  std::unique_ptr<MatmulPlans> matmul_plans_;        // null until the first product
  std::unique_ptr<CudnnAttention> cudnn_attention_;  // null until the first attention
  bool without_cudnn_ = false;                       // it was looked for in vain
  int open_operations_ = 0;
  std::set<CudaStream*> streams_;
  std::unique_ptr<CudaStream> compute_stream_;
};

}  // namespace fsdp::cuda
