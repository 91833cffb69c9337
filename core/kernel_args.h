// A kernel as a value: one of the argument structs of core/layer_args.h and core/shard_args.h. Each
// struct says
//   name()   the kernel's name in traces, errors and reports
//   visit()  its tensors, each with its role, and its lists, in order, and returns the same struct
//            with what the visitor gave for each of them: the same call on other tensors
//   words()  what else its time depends on, for people; where there is something to say
//   cost()   what it costs at the very least, where its roles do not say it (cost_of)
// A struct that is in the list below is a kernel: every backend has to have it.
// A visitor is called with a role and a tensor (a reference, a pointer that is not null or null, or
// a HeadView) and returns what stands for it; list() is called with a list. See EachTensor below.
#pragma once

#include <variant>

#include "core/layer_args.h"
#include "core/optimizer_rules/list.h"
#include "core/shard_args.h"

#define FSDP_UPDATE(KERNEL, Rule) KERNEL(UpdateArgs<rules::Rule>)

// The list of kernels. A backend declares an overload for each with it (kernels/cpu/cpu_backend.h),
// and does not build without one.
#define FSDP_KERNELS(KERNEL)      \
  KERNEL(MatmulArgs)              \
  KERNEL(SumRowsArgs)             \
  KERNEL(LayerNormForwardArgs)    \
  KERNEL(LayerNormBackwardArgs)   \
  KERNEL(RmsNormForwardArgs)      \
  KERNEL(RmsNormBackwardArgs)     \
  KERNEL(ActivationForwardArgs)   \
  KERNEL(ActivationBackwardArgs)  \
  KERNEL(GluForwardArgs)          \
  KERNEL(GluBackwardArgs)         \
  KERNEL(AddArgs)                 \
  KERNEL(RopeArgs)                \
  KERNEL(CopyHeadsArgs)           \
  KERNEL(DropoutArgs)             \
  KERNEL(AttentionForwardArgs)    \
  KERNEL(AttentionBackwardArgs)   \
  KERNEL(EmbeddingForwardArgs)    \
  KERNEL(EmbeddingBackwardArgs)   \
  KERNEL(PositionBackwardArgs)    \
  KERNEL(CrossEntropyArgs)        \
  KERNEL(CastArgs)                \
  KERNEL(DivideArgs)              \
  KERNEL(FillNormalArgs)          \
  KERNEL(StochasticRoundArgs)     \
  FSDP_RULES(FSDP_UPDATE, KERNEL) \
  KERNEL(AdvanceStepsArgs)        \
  KERNEL(PowerSumArgs)            \
  KERNEL(ClipArgs)                \
  KERNEL(OverflowArgs)            \
  KERNEL(LossScaleArgs)

namespace fsdp {

// Refers to the arguments of a call, for as long as the call: a parameter, nothing to keep.
template <typename, typename... AllArgs>
class AnyKernel {
 public:
  static constexpr size_t kKinds = sizeof...(AllArgs);

  template <typename Args>
  requires(std::is_same_v<Args, AllArgs> || ...) AnyKernel(const Args& args)
      : args_(std::in_place_type<const Args*>, &args) {}

  size_t kind() const { return args_.index(); }  // below kKinds
  // f(the arguments): has to compile for every kernel.
  template <typename F>
  decltype(auto) visit(F&& f) const {
    return std::visit([&](const auto* args) -> decltype(auto) { return f(*args); }, args_);
  }

 private:
  std::variant<const AllArgs*...> args_;
};
#define FSDP_AND_KERNEL(Args) , Args
using Kernel = AnyKernel<void FSDP_KERNELS(FSDP_AND_KERNEL)>;
#undef FSDP_AND_KERNEL

// The visitor that changes nothing: f(role, tensor) of each tensor that is given.
template <typename F>
class EachTensor {
 public:
  explicit EachTensor(F f) : f_(std::move(f)) {}

  const Tensor& operator()(const TensorRole& role, const Tensor& tensor) {
    f_(role, tensor);
    return tensor;
  }
  Tensor& operator()(const TensorRole& role, Tensor& tensor) {
    f_(role, tensor);
    return tensor;
  }
  template <typename T>
  T* operator()(const TensorRole& role, T* tensor) {
    if (tensor) f_(role, *tensor);
    return tensor;
  }
  HeadView operator()(const TensorRole& role, const HeadView& view) {
    return f_(role, *view.tensor), view;
  }
  template <typename T>
  const std::vector<T>& list(const std::vector<T>& values) {
    return values;
  }

 private:
  F f_;
};
template <typename Args, typename F>
void for_each_tensor(const Args& args, F f) {
  EachTensor<F> visitor(std::move(f));
  static_cast<void>(args.visit(visitor));
}

// Of one pass over its tensors that are not small, unless cost() says otherwise.
Cost cost_of(Kernel kernel);
std::string words_of(Kernel kernel);  // "" where there are none

}  // namespace fsdp
