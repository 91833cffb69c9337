// The list of the kernels, and what can be read from a call of any of them (core/kernel.h). The
// arguments are structs of core/layer_args.h and core/shard_args.h. Each struct says
//   name()   the kernel's name in traces, errors and reports
//   visit()  its tensors, each with its role, and its lists, in order, and returns the same struct
//            with what the visitor gave for each of them: the same call on other tensors
//   words()  what else its time depends on, for people; where there is something to say
//   cost()   what it costs at the very least, where its roles do not say it (cost_of)
// A struct that is in the list below is a kernel: every backend has to have it.
// A visitor is called with a role and a tensor (a reference, a pointer that is not null or null, or
// a HeadView) and returns what stands for it; list() is called with a list. See core/each_tensor.h.
#pragma once

#include <string>
#include <type_traits>

#include "core/each_tensor.h"
#include "core/error.h"
#include "core/kernel.h"
#include "core/layer_args.h"
#include "core/optimizer_rules/list.h"
#include "core/shard_args.h"

#define FSDP_UPDATE(KERNEL, Rule) KERNEL(UpdateArgs<rules::Rule>)

// The list of kernels. A backend has a compute() for each (kernels/cpu/cpu_backend.h), and does not
// link without one.
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

// Counts the kernels of the list, and finds the index of each.
template <typename, typename... AllArgs>
struct KernelList {
  static constexpr size_t kKinds = sizeof...(AllArgs);
  template <typename Args>
  static constexpr size_t kind_of() {
    size_t kind = 0;
    static_cast<void>(((std::is_same_v<Args, AllArgs> || (++kind, false)) || ...));
    return kind;
  }
};
#define FSDP_AND_KERNEL(Args) , Args
using Kernels = KernelList<void FSDP_KERNELS(FSDP_AND_KERNEL)>;
#undef FSDP_AND_KERNEL

template <typename F>
decltype(auto) Kernel::visit(F&& f) const {
  switch (kind_) {
#define FSDP_CASE(Args)          \
  case Kernels::kind_of<Args>(): \
    return f(*static_cast<const Args*>(args_));
    FSDP_KERNELS(FSDP_CASE)
#undef FSDP_CASE
  }
  fail("[kernel] kind: {}", kind_);
}

// Of one pass over its tensors that are not small, unless cost() says otherwise.
Cost cost_of(Kernel kernel);
std::string words_of(Kernel kernel);  // "" where there are none

}  // namespace fsdp
