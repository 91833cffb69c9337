// Adam and AdamW over a flat shard: one pass that reads and writes master, exp_avg and exp_avg_sq
// and reads the gradient (28 bytes a parameter in f32), plus the rounded copy.
// Formulas: core/kernel_args.h. The walk: kernels/cpu/shard_update.h.
#include <cmath>

#include "kernels/cpu/shard_update.h"

namespace fsdp::cpu {
namespace {

// Scalars of one parameter at one step, computed in double.
template <typename M>
struct AdamCoefficients {
  M keep, decay, beta1_rest, beta2, beta2_rest, step_size, correction2_root, epsilon;
  M gradient_scale;
};

template <typename M, typename G>
void adam_run(const AdamCoefficients<M> k, M* master, const G* grad, M* exp_avg, M* exp_avg_sq,
              int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const M g = with_decay(M(grad[i]) * k.gradient_scale, master[i], k.decay);
    const M m = exp_avg[i] + k.beta1_rest * (g - exp_avg[i]);
    const M v = k.beta2 * exp_avg_sq[i] + (k.beta2_rest * g) * g;
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    const M denominator = std::sqrt(v) / k.correction2_root + k.epsilon;
    master[i] = master[i] * k.keep - k.step_size * (m / denominator);
  }
}

template <typename M>
struct AdamRule {
  using Coefficients = AdamCoefficients<M>;
  M* exp_avg;
  M* exp_avg_sq;
  double beta1, beta2, epsilon;
  bool decoupled;

  Coefficients at(double learning_rate, int32_t t, double weight_decay, M gradient_scale) const {
    return {.keep = static_cast<M>(decoupled ? 1 - learning_rate * weight_decay : 1.0),
            .decay = static_cast<M>(decoupled ? 0.0 : weight_decay),
            .beta1_rest = static_cast<M>(1 - beta1),
            .beta2 = static_cast<M>(beta2),
            .beta2_rest = static_cast<M>(1 - beta2),
            .step_size = static_cast<M>(learning_rate / (1 - std::pow(beta1, t))),
            .correction2_root = static_cast<M>(std::sqrt(1 - std::pow(beta2, t))),
            .epsilon = static_cast<M>(epsilon),
            .gradient_scale = gradient_scale};
  }

  template <typename G>
  void update(const Coefficients& k, M* master, const G* grad, int64_t begin, int64_t n) const {
    wide_loop([&](auto) { adam_run(k, master, grad, exp_avg + begin, exp_avg_sq + begin, n); });
  }
};

}  // namespace

void CpuBackend::compute(Stream& stream, const AdamArgs& args) {
  update_shard(*this, stream, args.name(), args.shard, [&]<typename M>(TypeTag<M>) {
    return AdamRule<M>{.exp_avg = args.exp_avg.data_as<M>(),
                       .exp_avg_sq = args.exp_avg_sq.data_as<M>(),
                       .beta1 = args.beta1,
                       .beta2 = args.beta2,
                       .epsilon = args.epsilon,
                       .decoupled = args.decoupled};
  });
}

}  // namespace fsdp::cpu
