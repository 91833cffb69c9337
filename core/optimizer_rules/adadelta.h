// Adadelta (Zeiler, arXiv 1212.5701), whose steps have the scale of its earlier steps, as in
// torch.optim.Adadelta, which has a learning rate (PyTorch's is 1):
//   g += weight_decay * p;  v = rho v + (1 - rho) g^2
//   d = sqrt(a + epsilon) / sqrt(v + epsilon) * g;  a = rho a + (1 - rho) d^2;  p -= lr * d
// Contract: core/optimizer_rules/rule.h.
#pragma once

#include "core/optimizer_rules/rule.h"

namespace fsdp::rules {

struct Adadelta {
  static constexpr std::string_view kName = "adadelta";
  static constexpr std::array<std::string_view, 2> kStates = {"square_avg", "acc_delta"};
  static constexpr std::array<std::string_view, 2> kReads = {"rho", "epsilon"};
  double rho = 0.9, epsilon = 1e-6;

  static Adadelta of(const auto& options) {
    return {.rho = options.rho, .epsilon = options.epsilon};
  }

  template <typename M>
  struct Numbers {
    M learning_rate, decay, rho, rho_rest, epsilon;
  };
  template <typename M>
  constexpr Numbers<M> at(double learning_rate, double /*t*/, double weight_decay) const {
    return {.learning_rate = static_cast<M>(learning_rate),
            .decay = static_cast<M>(weight_decay),
            .rho = static_cast<M>(rho),
            .rho_rest = static_cast<M>(1 - rho),
            .epsilon = static_cast<M>(epsilon)};
  }
  template <typename M>
  static constexpr void step(const Numbers<M>& k, M g, M& p, std::array<M, 2>& s) {
    g = with_decay(g, p, k.decay);
    s[0] = std::fma(k.rho, s[0], (k.rho_rest * g) * g);
    const M delta = std::sqrt(s[1] + k.epsilon) / std::sqrt(s[0] + k.epsilon) * g;
    s[1] = std::fma(k.rho, s[1], (k.rho_rest * delta) * delta);
    p = std::fma(-k.learning_rate, delta, p);
  }
};

}  // namespace fsdp::rules
