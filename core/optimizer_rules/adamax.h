// Adamax (Kingma & Ba, section 7.1), the variant of Adam with the infinity norm, as in
// torch.optim.Adamax, which adds epsilon inside the maximum:
//   g += weight_decay * p;  m = m + (1 - b1) (g - m);  u = max(b2 u, |g| + epsilon)
//   p -= lr / (1 - b1^t) * m / u
// fairseq's own Adamax shrinks parameters as AdamW does instead. Contract:
// core/optimizer_rules/rule.h.
#pragma once

#include "core/optimizer_rules/rule.h"

namespace fsdp::rules {

struct Adamax {
  static constexpr std::string_view kName = "adamax";
  static constexpr std::array<std::string_view, 2> kStates = {"exp_avg", "exp_inf"};
  static constexpr std::array<std::string_view, 3> kReads = {"beta1", "beta2", "epsilon"};
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8;

  static Adamax of(const auto& options) {
    return {.beta1 = options.beta1, .beta2 = options.beta2, .epsilon = options.epsilon};
  }

  template <typename M>
  struct Numbers {
    M decay, beta1_rest, beta2, step_size, epsilon;
  };
  template <typename M>
  constexpr Numbers<M> at(double learning_rate, double t, double weight_decay) const {
    return {.decay = static_cast<M>(weight_decay),
            .beta1_rest = static_cast<M>(1 - beta1),
            .beta2 = static_cast<M>(beta2),
            .step_size = static_cast<M>(learning_rate / (1 - std::pow(beta1, t))),
            .epsilon = static_cast<M>(epsilon)};
  }
  template <typename M>
  static constexpr void step(const Numbers<M>& k, M g, M& p, std::array<M, 2>& s) {
    g = with_decay(g, p, k.decay);
    s[0] = std::fma(k.beta1_rest, g - s[0], s[0]);
    const M old = k.beta2 * s[1], now = std::abs(g) + k.epsilon;
    s[1] = old > now ? old : now;
    p = std::fma(-k.step_size, s[0] / s[1], p);
  }
};

}  // namespace fsdp::rules
