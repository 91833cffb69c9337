// Adamax over a flat shard: one pass that reads and writes master, exp_avg and exp_inf and reads
// the gradient (28 bytes a parameter in f32), plus the rounded copy. Formulas: core/kernel_args.h.
// The walk: kernels/cpu/shard_update.h.
#include <cmath>

#include "kernels/cpu/shard_update.h"

namespace fsdp::cpu {
namespace {

// Scalars of one parameter at one step, computed in double.
template <typename M>
struct AdamaxCoefficients {
  M decay, beta1_rest, beta2, step_size, epsilon, gradient_scale;
};

template <typename M, typename G>
void adamax_run(const AdamaxCoefficients<M> k, M* master, const G* grad, M* exp_avg, M* exp_inf,
                int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const M g = with_decay(M(grad[i]) * k.gradient_scale, master[i], k.decay);
    const M m = exp_avg[i] + k.beta1_rest * (g - exp_avg[i]);
    const M old = k.beta2 * exp_inf[i];
    const M now = std::abs(g) + k.epsilon;
    const M u = old > now ? old : now;
    exp_avg[i] = m;
    exp_inf[i] = u;
    master[i] -= k.step_size * (m / u);
  }
}

template <typename M>
struct AdamaxRule {
  using Coefficients = AdamaxCoefficients<M>;
  M* exp_avg;
  M* exp_inf;
  double beta1, beta2, epsilon;

  Coefficients at(double learning_rate, int32_t t, double weight_decay, M gradient_scale) const {
    return {.decay = static_cast<M>(weight_decay),
            .beta1_rest = static_cast<M>(1 - beta1),
            .beta2 = static_cast<M>(beta2),
            .step_size = static_cast<M>(learning_rate / (1 - std::pow(beta1, t))),
            .epsilon = static_cast<M>(epsilon),
            .gradient_scale = gradient_scale};
  }

  template <typename G>
  void update(const Coefficients& k, M* master, const G* grad, int64_t begin, int64_t n) const {
    wide_loop([&](auto) { adamax_run(k, master, grad, exp_avg + begin, exp_inf + begin, n); });
  }
};

}  // namespace

void CpuBackend::compute(Stream& stream, const AdamaxArgs& args) {
  update_shard(*this, stream, "adamax", args.shard, [&]<typename M>(TypeTag<M>) {
    return AdamaxRule<M>{.exp_avg = args.exp_avg.data_as<M>(),
                         .exp_inf = args.exp_inf.data_as<M>(),
                         .beta1 = args.beta1,
                         .beta2 = args.beta2,
                         .epsilon = args.epsilon};
  });
}

}  // namespace fsdp::cpu
