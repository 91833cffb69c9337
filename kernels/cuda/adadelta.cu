// Adadelta over a flat shard in one pass: master, square_avg and acc_delta are read and written,
// the gradient read and the rounded copy written. Bound by memory. Formulas: core/kernel_args.h.
// The kernels: kernels/cuda/shard_update.h.
#include "kernels/cuda/shard_update.h"

namespace fsdp::cuda {
namespace {

struct AdadeltaRule {
  struct Coefficients {
    float learning_rate, decay;
  };

  float* square_avg;
  float* acc_delta;
  float rho, rho_rest, epsilon;

  __device__ Coefficients at(double rate, double /*t*/, double weight_decay) const {
    return {.learning_rate = static_cast<float>(rate), .decay = static_cast<float>(weight_decay)};
  }

  template <int V>
  __device__ __forceinline__ void update(int64_t i, const Coefficients& k, float scale,
                                         float (&p)[V], float (&g)[V]) const {
    float v[V], a[V];
    load_widened<V>(square_avg + i, v);
    load_widened<V>(acc_delta + i, a);
#pragma unroll
    for (int j = 0; j < V; ++j) {
      g[j] = with_decay(g[j] * scale, p[j], k.decay);
      v[j] = rho * v[j] + (rho_rest * g[j]) * g[j];
      const float delta = sqrtf(a[j] + epsilon) / sqrtf(v[j] + epsilon) * g[j];
      a[j] = rho * a[j] + (rho_rest * delta) * delta;
      p[j] -= k.learning_rate * delta;
    }
    store_narrowed<V>(square_avg + i, v);
    store_narrowed<V>(acc_delta + i, a);
  }
};

}  // namespace

void CudaBackend::compute(Stream& stream, const AdadeltaArgs& args) {
  const ShardUpdate& shard = args.shard;
  const Op op(*this, stream, args);
  const AdadeltaRule rule = {.square_avg = args.square_avg.data_as<float>(),
                             .acc_delta = args.acc_delta.data_as<float>(),
                             .rho = static_cast<float>(args.rho),
                             .rho_rest = static_cast<float>(1 - args.rho),
                             .epsilon = static_cast<float>(args.epsilon)};
  update_shard(op, shard, rule, {&args.square_avg, &args.acc_delta});
}

}  // namespace fsdp::cuda
