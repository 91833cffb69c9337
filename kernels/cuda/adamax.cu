// Adamax over a flat shard in one pass: master, exp_avg and exp_inf are read and written, the
// gradient read and the rounded copy written. Bound by memory. Formulas: core/kernel_args.h. The
// kernels: kernels/cuda/shard_update.h.
#include "kernels/cuda/shard_update.h"

namespace fsdp::cuda {
namespace {

struct AdamaxRule {
  struct Coefficients {  // computed in double
    float decay, step_size;
  };

  float* exp_avg;
  float* exp_inf;
  double beta1;
  float beta1_rest, beta2, epsilon;

  __device__ Coefficients at(double rate, double t, double weight_decay) const {
    return {.decay = static_cast<float>(weight_decay),
            .step_size = static_cast<float>(rate / (1 - pow(beta1, t)))};
  }

  template <int V>
  __device__ __forceinline__ void update(int64_t i, const Coefficients& k, float scale,
                                         float (&p)[V], float (&g)[V]) const {
    float m[V], u[V];
    load_widened<V>(exp_avg + i, m);
    load_widened<V>(exp_inf + i, u);
#pragma unroll
    for (int j = 0; j < V; ++j) {
      g[j] = with_decay(g[j] * scale, p[j], k.decay);
      m[j] += beta1_rest * (g[j] - m[j]);
      const float old = beta2 * u[j];
      const float now = fabsf(g[j]) + epsilon;
      u[j] = old > now ? old : now;
      p[j] -= k.step_size * (m[j] / u[j]);
    }
    store_narrowed<V>(exp_avg + i, m);
    store_narrowed<V>(exp_inf + i, u);
  }
};

}  // namespace

void CudaBackend::compute(Stream& stream, const AdamaxArgs& args) {
  const ShardUpdate& shard = args.shard;
  const Op op(*this, stream, args);
  const AdamaxRule rule = {.exp_avg = args.exp_avg.data_as<float>(),
                           .exp_inf = args.exp_inf.data_as<float>(),
                           .beta1 = args.beta1,
                           .beta1_rest = static_cast<float>(1 - args.beta1),
                           .beta2 = static_cast<float>(args.beta2),
                           .epsilon = static_cast<float>(args.epsilon)};
  update_shard(op, shard, rule, {&args.exp_avg, &args.exp_inf});
}

}  // namespace fsdp::cuda
