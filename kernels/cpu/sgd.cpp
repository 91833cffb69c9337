// SGD over a flat shard, with and without momentum: one pass that reads and writes the master (and
// the momentum buffer) and reads the gradient (12 or 20 bytes a parameter in f32), plus the copy.
// Formulas: core/kernel_args.h. The walk: kernels/cpu/shard_update.h.
#include "kernels/cpu/shard_update.h"

namespace fsdp::cpu {
namespace {

// Scalars of one parameter at one step.
template <typename M>
struct SgdCoefficients {
  M learning_rate, decay, momentum, fresh, gradient_scale;
  bool first, nesterov;
};

template <typename M, typename G>
void plain_run(const SgdCoefficients<M> k, M* master, const G* grad, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const M g = with_decay(M(grad[i]) * k.gradient_scale, master[i], k.decay);
    master[i] -= k.learning_rate * g;
  }
}

template <typename M, typename G>
void momentum_run(const SgdCoefficients<M> k, M* master, const G* grad, M* buffer, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const M g = with_decay(M(grad[i]) * k.gradient_scale, master[i], k.decay);
    const M b = k.first ? g : k.momentum * buffer[i] + k.fresh * g;
    buffer[i] = b;
    master[i] -= k.learning_rate * (k.nesterov ? g + k.momentum * b : b);
  }
}

template <typename M>
struct SgdRule {
  using Coefficients = SgdCoefficients<M>;
  M* buffer;  // or null
  double momentum, dampening;
  bool nesterov;

  Coefficients at(double learning_rate, int32_t t, double weight_decay, M gradient_scale) const {
    return {.learning_rate = static_cast<M>(learning_rate),
            .decay = static_cast<M>(weight_decay),
            .momentum = static_cast<M>(momentum),
            .fresh = static_cast<M>(1 - dampening),
            .gradient_scale = gradient_scale,
            .first = t == 1,
            .nesterov = nesterov};
  }

  template <typename G>
  void update(const Coefficients& k, M* master, const G* grad, int64_t begin, int64_t n) const {
    wide_loop([&](auto) {
      if (buffer) {
        momentum_run(k, master, grad, buffer + begin, n);
      } else {
        plain_run(k, master, grad, n);
      }
    });
  }
};

}  // namespace

void CpuBackend::compute(Stream& stream, const SgdArgs& args) {
  update_shard(*this, stream, "sgd", args.shard, [&]<typename M>(TypeTag<M>) {
    return SgdRule<M>{.buffer = data_or_null<M>(args.momentum_buffer),
                      .momentum = args.momentum,
                      .dampening = args.dampening,
                      .nesterov = args.nesterov};
  });
}

}  // namespace fsdp::cpu
