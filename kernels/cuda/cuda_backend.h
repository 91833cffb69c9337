// A GPU as a backend: CUDA streams and events, memory of the driver's stream-ordered pool, one file
// per kernel family. Every stream has a host mirror, a CPU stream that runs what needs the host
// (host tasks, transports, waits for events of another backend) and carries errors.
// f64 is refused by name, except for the scalars that loss and norms add up in.
// Read next: kernels/cuda/stream.h (mirror, gate), kernels/cuda/launch.h (how kernels start).
#pragma once

#include <memory>
#include <string>

#include "core/tensor.h"
#include "core/trace.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_devices.h"

namespace fsdp::cuda {

class CudaStream;
class CudnnAttention;
class EventPool;
class MatmulPlans;
class OpClock;
class PinnedPool;

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(const CudaOptions& options = {});
  ~CudaBackend() override;

  std::string_view name() const override { return "cuda"; }
  const CudaOptions& options() const { return options_; }
  const DeviceInfo& device() const { return device_; }

  void* allocate(Stream& stream, size_t bytes, MemoryCategory category) override;
  void release(Stream& stream, void* data, size_t bytes, MemoryCategory category) override;
  // Either side may be pinned host memory.
  void copy(Stream& stream, void* destination, const void* source, size_t bytes) override;
  void fill_zero(Stream& stream, void* data, size_t bytes) override;
  void copy_from_host(Stream& stream, void* destination, const void* source, size_t bytes) override;
  void copy_to_host(Stream& stream, void* destination, const void* source, size_t bytes) override;
  EventPtr read_later(Stream& stream, void* destination, const void* source, size_t bytes,
                      std::function<void()> arrived) override;
  MemoryLedger& ledger() override { return ledger_; }
  bool host_reaches_memory() const override { return false; }
  std::shared_ptr<std::byte> staging_memory(size_t bytes) override;

  Stream& compute_stream() override;
  std::unique_ptr<Stream> create_stream(std::string name) override;
  EventPtr record(Stream& stream) override;
  void wait(Stream& stream, const EventPtr& event) override;
  void synchronize(Stream& stream) override;
  void host_task(Stream& stream, std::string_view name, int64_t bytes,
                 std::function<void()> task) override;
  void set_scope(std::string scope) override { host_.set_scope(std::move(scope)); }
  std::string scope() const override { return host_.scope(); }
  void set_trace(Trace* trace) override;

  void matmul(Stream& stream, const MatmulArgs& args) override;
  void sum_rows(Stream& stream, const SumRowsArgs& args) override;
  void layer_norm_forward(Stream& stream, const NormForwardArgs& args) override;
  void layer_norm_backward(Stream& stream, const NormBackwardArgs& args) override;
  void rms_norm_forward(Stream& stream, const NormForwardArgs& args) override;
  void rms_norm_backward(Stream& stream, const NormBackwardArgs& args) override;
  void activation_forward(Stream& stream, Activation kind, const Tensor& x, Tensor& y) override;
  void activation_backward(Stream& stream, Activation kind, const Tensor& x, const Tensor& dy,
                           Tensor& dx) override;
  void glu_forward(Stream& stream, Activation kind, const Tensor& gate, const Tensor& up,
                   Tensor& y) override;
  void glu_backward(Stream& stream, Activation kind, const Tensor& gate, const Tensor& up,
                    const Tensor& dy, Tensor& dgate, Tensor& dup) override;
  void rope(Stream& stream, const RopeArgs& args) override;
  void copy_heads(Stream& stream, const HeadView& from, const HeadView& to, int64_t first) override;
  void attention_forward(Stream& stream, const AttentionForwardArgs& args) override;
  void attention_backward(Stream& stream, const AttentionBackwardArgs& args) override;
  void embedding_forward(Stream& stream, const Tensor& tokens, const Tensor& table,
                         const Tensor* positions, int64_t first_position, Tensor& y) override;
  void embedding_backward(Stream& stream, const Tensor& tokens, const Tensor& dy, Tensor& dtable,
                          bool accumulate) override;
  void position_backward(Stream& stream, const Tensor& dy, Tensor& dpositions,
                         bool accumulate) override;
  void dropout(Stream& stream, const DropoutArgs& args, const Tensor& x, Tensor& y) override;
  void cross_entropy(Stream& stream, const CrossEntropyArgs& args) override;
  void add(Stream& stream, const Tensor& a, const Tensor& b, Tensor& out) override;
  void cast(Stream& stream, const Tensor& x, Tensor& out) override;
  void divide(Stream& stream, Tensor& x, double divisor) override;
  void fill_normal(Stream& stream, Tensor& x, double mean, double deviation, uint64_t seed,
                   uint64_t name_hash, int64_t first_index) override;
  void round_stochastically(Stream& stream, const StochasticRoundArgs& args) override;
  void adam(Stream& stream, const AdamArgs& args) override;
  void adamax(Stream& stream, const AdamaxArgs& args) override;
  void adadelta(Stream& stream, const AdadeltaArgs& args) override;
  void sgd(Stream& stream, const SgdArgs& args) override;
  void advance_steps(Stream& stream, Tensor& step_counts, const Tensor& present,
                     const Tensor& skip) override;
  void power_sum(Stream& stream, const PowerSumArgs& args) override;
  void clip_coefficient(Stream& stream, const ClipArgs& args) override;
  void find_overflow(Stream& stream, const OverflowArgs& args) override;
  void update_loss_scale(Stream& stream, const LossScaleArgs& args) override;

  // ---- for the files of this folder ----
  CudaStream& own(Stream& stream, std::string_view op) const;  // Error: of another backend
  OpClock* clock() const { return clock_.get(); }              // null unless traced
  // How many there are now: of those that use others the outer one has the span, or its time would
  // count twice. One host thread enqueues.
  int& open_operations() { return open_operations_; }
  cpu::CpuBackend& host() { return host_; }
  CudnnAttention* cudnn_attention();  // null: the own kernels do all of it

 private:
  CudaOptions options_;
  DeviceInfo device_;
  MemoryLedger ledger_;
  cpu::CpuBackend host_;  // of the mirrors
  std::shared_ptr<EventPool> events_;
  std::shared_ptr<PinnedPool> pinned_;
  std::unique_ptr<OpClock> clock_;
  std::unique_ptr<MatmulPlans> matmul_plans_;        // null until the first product
  std::unique_ptr<CudnnAttention> cudnn_attention_;  // null until the first attention
  bool without_cudnn_ = false;                       // it was looked for in vain
  int open_operations_ = 0;
  std::unique_ptr<CudaStream> compute_stream_;
};

}  // namespace fsdp::cuda
