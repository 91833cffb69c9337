// A kernel as it was called, without the memory of its tensors: its name, as text all that its time
// depends on, its cost, and the same call on other tensors. One function a kernel, with the
// arguments of core/backend.h. Not here: how long a call takes (call_times.h).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "core/backend.h"
#include "core/ops/cost.h"
#include "core/tensor.h"

namespace fsdp::meta {

// A tensor of a call.
struct TensorForm {
  // What must be in it, so that the call does the work that it does in a step.
  enum class Content : uint8_t { kNumbers, kZeros, kOnes, kIndices };

  Shape shape;
  DType dtype = DType::kF32;
  const void* address = nullptr;  // tensors of a call with one address share memory
  Content content = Content::kNumbers;
  int64_t below = 1;  // of indices: they are within [0, below)
  // False: the caches have it, because the step has just written it.
  bool from_memory = true;
  bool given = false;  // optional tensors may be left out
};

// Makes the tensors of a call on a backend that has memory.
class CallTensors {
 public:
  virtual ~CallTensors() = default;
  virtual Tensor make(const TensorForm& form) = 0;  // undefined for one that is not given
};
using KernelRun = std::function<void(Backend& backend, Stream& stream)>;

struct KernelCall {
  std::string_view kernel;  // as in traces: "adamw"
  std::string shape;        // "256 x 768, 768 x 2304; bias"
  DType dtype = DType::kF32;
  ops::Cost cost;
  std::optional<ops::MatmulExtents> product = {};  // of matmul
  // One set of tensors, and the call on them, which may be made many times.
  std::function<KernelRun(CallTensors& tensors)> prepare;
};

KernelCall copy_call(const void* destination, const void* source, size_t bytes);
KernelCall fill_zero_call(const void* data, size_t bytes);
KernelCall matmul_call(const MatmulArgs& args);
KernelCall sum_rows_call(const SumRowsArgs& args);
KernelCall norm_forward_call(bool layer_norm, const NormForwardArgs& args);
KernelCall norm_backward_call(bool layer_norm, const NormBackwardArgs& args);
KernelCall activation_forward_call(Activation kind, const Tensor& x, const Tensor& y);
KernelCall activation_backward_call(Activation kind, const Tensor& x, const Tensor& dy,
                                    const Tensor& dx);
KernelCall glu_forward_call(Activation kind, const Tensor& gate, const Tensor& up, const Tensor& y);
KernelCall glu_backward_call(Activation kind, const Tensor& gate, const Tensor& up,
                             const Tensor& dy, const Tensor& dgate, const Tensor& dup);
KernelCall rope_call(const RopeArgs& args);
KernelCall copy_heads_call(const HeadView& from, const HeadView& to, int64_t first);
KernelCall attention_forward_call(const AttentionForwardArgs& args);
KernelCall attention_backward_call(const AttentionBackwardArgs& args);
KernelCall embedding_forward_call(const Tensor& tokens, const Tensor& table,
                                  const Tensor* positions, int64_t first_position, const Tensor& y);
KernelCall embedding_backward_call(const Tensor& tokens, const Tensor& dy, const Tensor& dtable,
                                   bool accumulate);
KernelCall position_backward_call(const Tensor& dy, const Tensor& dpositions, bool accumulate);
KernelCall dropout_call(const DropoutArgs& args, const Tensor& x, const Tensor& y);
KernelCall cross_entropy_call(const CrossEntropyArgs& args);
KernelCall add_call(const Tensor& a, const Tensor& b, const Tensor& out);
KernelCall cast_call(const Tensor& x, const Tensor& out);
KernelCall divide_call(const Tensor& x, double divisor);
KernelCall fill_normal_call(const Tensor& x, double deviation);
KernelCall round_stochastically_call(const StochasticRoundArgs& args);
KernelCall adam_call(const AdamArgs& args);
KernelCall adamax_call(const AdamaxArgs& args);
KernelCall adadelta_call(const AdadeltaArgs& args);
KernelCall sgd_call(const SgdArgs& args);
KernelCall advance_steps_call(const Tensor& step_counts, const Tensor& present, const Tensor& skip);
KernelCall power_sum_call(const PowerSumArgs& args);
KernelCall clip_coefficient_call(const ClipArgs& args);
KernelCall find_overflow_call(const OverflowArgs& args);
KernelCall update_loss_scale_call(const LossScaleArgs& args);

}  // namespace fsdp::meta
