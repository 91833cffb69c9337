// Stochastic gradient descent as in torch.optim.SGD:
//   g += weight_decay * p;  b = g when t is 1, else momentum b + (1 - dampening) g
//   p -= lr * (nesterov ? g + momentum b : b)
// Without momentum nothing is kept: p -= lr * g. Contract: core/optimizer_rules/rule.h.
#pragma once

#include "core/error.h"
#include "core/optimizer_rules/rule.h"

namespace fsdp::rules {

struct Sgd {
  static constexpr std::string_view kName = "sgd";
  static constexpr std::array<std::string_view, 1> kStates = {"momentum_buffer"};
  static constexpr std::array<std::string_view, 3> kReads = {"momentum", "dampening", "nesterov"};
  static constexpr std::string_view kStateWord = "momentum";  // of a call that has the state
  double momentum = 0, dampening = 0;
  bool nesterov = false;

  // Error when Nesterov's momentum has no momentum or is dampened.
  static Sgd of(const auto& options) {
    FSDP_CHECK(!options.nesterov || (options.momentum > 0 && options.dampening == 0),
               "[sgd] nesterov: expected momentum above 0 and dampening 0, got {} and {}",
               options.momentum, options.dampening);
    return {
        .momentum = options.momentum, .dampening = options.dampening, .nesterov = options.nesterov};
  }
  constexpr bool keeps_state() const { return momentum != 0; }

  template <typename M>
  struct Numbers {
    M learning_rate, decay, momentum, fresh;
    bool first, nesterov;  // first: b is g
  };
  template <typename M>
  constexpr Numbers<M> at(double learning_rate, double t, double weight_decay) const {
    return {.learning_rate = static_cast<M>(learning_rate),
            .decay = static_cast<M>(weight_decay),
            .momentum = static_cast<M>(momentum),
            .fresh = static_cast<M>(1 - dampening),
            .first = t == 1 || !keeps_state(),
            .nesterov = nesterov};
  }
  template <typename M>
  static constexpr void step(const Numbers<M>& k, M g, M& p, std::array<M, 1>& s) {
    g = with_decay(g, p, k.decay);
    s[0] = k.first ? g : std::fma(k.momentum, s[0], k.fresh * g);
    p = std::fma(-k.learning_rate, k.nesterov ? std::fma(k.momentum, s[0], g) : s[0], p);
  }
};

}  // namespace fsdp::rules
