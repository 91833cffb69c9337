// Adadelta over a flat shard: one pass that reads and writes master, square_avg and acc_delta and
// reads the gradient (28 bytes a parameter in f32), plus the rounded copy.
// Formulas: core/kernel_args.h. The walk: kernels/cpu/shard_update.h.
#include <cmath>

#include "kernels/cpu/shard_update.h"

namespace fsdp::cpu {
namespace {

// Scalars of one parameter at one step.
template <typename M>
struct AdadeltaCoefficients {
  M learning_rate, decay, rho, rho_rest, epsilon, gradient_scale;
};

template <typename M, typename G>
void adadelta_run(const AdadeltaCoefficients<M> k, M* master, const G* grad, M* square_avg,
                  M* acc_delta, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const M g = with_decay(M(grad[i]) * k.gradient_scale, master[i], k.decay);
    const M v = k.rho * square_avg[i] + (k.rho_rest * g) * g;
    const M delta = std::sqrt(acc_delta[i] + k.epsilon) / std::sqrt(v + k.epsilon) * g;
    square_avg[i] = v;
    acc_delta[i] = k.rho * acc_delta[i] + (k.rho_rest * delta) * delta;
    master[i] -= k.learning_rate * delta;
  }
}

template <typename M>
struct AdadeltaRule {
  using Coefficients = AdadeltaCoefficients<M>;
  M* square_avg;
  M* acc_delta;
  double rho, epsilon;

  Coefficients at(double learning_rate, int32_t /*t*/, double weight_decay,
                  M gradient_scale) const {
    return {.learning_rate = static_cast<M>(learning_rate),
            .decay = static_cast<M>(weight_decay),
            .rho = static_cast<M>(rho),
            .rho_rest = static_cast<M>(1 - rho),
            .epsilon = static_cast<M>(epsilon),
            .gradient_scale = gradient_scale};
  }

  template <typename G>
  void update(const Coefficients& k, M* master, const G* grad, int64_t begin, int64_t n) const {
    wide_loop(
        [&](auto) { adadelta_run(k, master, grad, square_avg + begin, acc_delta + begin, n); });
  }
};

}  // namespace

void CpuBackend::compute(Stream& stream, const AdadeltaArgs& args) {
  update_shard(*this, stream, "adadelta", args.shard, [&]<typename M>(TypeTag<M>) {
    return AdadeltaRule<M>{.square_avg = args.square_avg.data_as<M>(),
                           .acc_delta = args.acc_delta.data_as<M>(),
                           .rho = args.rho,
                           .epsilon = args.epsilon};
  });
}

}  // namespace fsdp::cpu
