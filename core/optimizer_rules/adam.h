// Adam (Kingma & Ba, ICLR 2015) in PyTorch's operation order:
//   m = m + (1 - b1) (g - m);  v = b2 v + (1 - b2) g^2
//   p -= lr / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + epsilon)
// Before that, AdamW (Loshchilov & Hutter, ICLR 2019): p *= 1 - lr * weight_decay; Adam:
// g += weight_decay * p. Contract: core/optimizer_rules/rule.h.
#pragma once

#include "core/optimizer_rules/rule.h"

namespace fsdp::rules {

template <bool kDecoupled>
struct AdamRule {
  static constexpr std::string_view kName = kDecoupled ? "adamw" : "adam";
  static constexpr std::array<std::string_view, 2> kStates = {"exp_avg", "exp_avg_sq"};
  static constexpr std::array<std::string_view, 3> kReads = {"beta1", "beta2", "epsilon"};
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8;

  static AdamRule of(const auto& options) {
    return {.beta1 = options.beta1, .beta2 = options.beta2, .epsilon = options.epsilon};
  }

  template <typename M>
  struct Numbers {
    M keep, decay, beta1_rest, beta2, beta2_rest, step_size, correction2_root, epsilon;
  };
  template <typename M>
  constexpr Numbers<M> at(double learning_rate, double t, double weight_decay) const {
    return {.keep = static_cast<M>(kDecoupled ? 1 - learning_rate * weight_decay : 1.0),
            .decay = static_cast<M>(kDecoupled ? 0.0 : weight_decay),
            .beta1_rest = static_cast<M>(1 - beta1),
            .beta2 = static_cast<M>(beta2),
            .beta2_rest = static_cast<M>(1 - beta2),
            .step_size = static_cast<M>(learning_rate / (1 - std::pow(beta1, t))),
            .correction2_root = static_cast<M>(std::sqrt(1 - std::pow(beta2, t))),
            .epsilon = static_cast<M>(epsilon)};
  }
  template <typename M>
  static constexpr void step(const Numbers<M>& k, M g, M& p, std::array<M, 2>& s) {
    g = with_decay(g, p, k.decay);
    s[0] = std::fma(k.beta1_rest, g - s[0], s[0]);
    s[1] = std::fma(k.beta2, s[1], (k.beta2_rest * g) * g);
    const M denominator = std::sqrt(s[1]) / k.correction2_root + k.epsilon;
    p = std::fma(-k.step_size, s[0] / denominator, p * k.keep);
  }
};
using AdamW = AdamRule<true>;
using Adam = AdamRule<false>;

}  // namespace fsdp::rules
