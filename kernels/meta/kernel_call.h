// A kernel as it was called, without the memory of its tensors: its name, as text all that its time
// depends on, its cost, and the same call on other tensors. Everything is read from the arguments
// (core/kernel_args.h). Not here: how long a call takes (call_times.h).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "core/backend.h"
#include "core/cost.h"
#include "core/tensor.h"
#include "core/tensor_role.h"

namespace fsdp::meta {

// A tensor of a call.
struct TensorForm {
  Shape shape;
  DType dtype = DType::kF32;
  const void* address = nullptr;  // tensors of a call with one address share memory
  TensorRole role = {};
};

// Makes the tensors of a call on a backend that has memory.
class CallTensors {
 public:
  virtual ~CallTensors() = default;
  virtual Tensor make(const TensorForm& form) = 0;
};
using KernelRun = std::function<void(Backend& backend, Stream& stream)>;

struct KernelCall {
  std::string_view kernel;  // as in traces: "adamw"
  std::string shape = {};   // "256 x 768, 768 x 2304; bias"
  DType dtype = DType::kF32;
  int64_t elements = 0;  // of the first tensor that says how much work there is
  Cost cost;
  std::optional<MatmulExtents> product = {};       // of matmul
  std::optional<AttentionExtents> attention = {};  // of attention, forward or backward
  // One set of tensors, and the call on them, which may be made many times.
  std::function<KernelRun(CallTensors& tensors)> prepare = {};
};

KernelCall kernel_call(Kernel kernel);
KernelCall copy_call(const void* destination, const void* source, size_t bytes);
KernelCall fill_zero_call(const void* data, size_t bytes);

}  // namespace fsdp::meta
