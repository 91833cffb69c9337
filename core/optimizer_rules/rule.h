// What an element-wise rule of an optimizer is: a struct of its options, with
//   kName    as configuration and traces name it
//   kStates  names of the values (two at most) that it keeps for every element, as PyTorch's
//   kReads   names of the options that it reads (optim::OptimizerOptions, keys of train.optimizer)
//   of()     the rule with its options taken from any struct that has them
//   Numbers  scalars of one parameter at one step, in the accumulation dtype M of the master
//   at()     makes them, in double. t: of this step, from 1. weight_decay: 0 where the parameter
//            has none
//   step()   takes one element, with its master p and its states s, one step. g: the gradient
// A rule that may keep no state says so by keeps_state(); step() then gets a state of 0 that is
// forgotten. CPU and CUDA kernels compile at() and step(): they are constexpr, as core/rng.h.
// step() says std::fma wherever a product is added, and the files that compile step() let no
// compiler contract more (-ffp-contract=off, -fmad=false): one element, a vector, the host and a
// GPU round alike.
// A new rule: its header, a line in list.h, its formula in tests/support/shard_case.h.
// Not here: the walk over a shard (kernels/{cpu,cuda}/shard_update.*), what all optimizers have in
// common (optim/optimizer.h).
#pragma once

#include <array>
#include <cmath>
#include <string_view>

namespace fsdp::rules {

// g + decay * p, and g itself where there is no decay, whatever p is.
template <typename M>
constexpr M with_decay(M g, M p, M decay) {
  return decay == 0 ? g : std::fma(decay, p, g);
}

// How many of Rule::kStates this one keeps.
template <typename Rule>
constexpr size_t states_of(const Rule& rule) {
  if constexpr (requires { rule.keeps_state(); }) {
    if (!rule.keeps_state()) return 0;
  }
  return Rule::kStates.size();
}

}  // namespace fsdp::rules
