// Adam and AdamW over a flat shard in one pass: master, exp_avg and exp_avg_sq are read and
// written, the gradient read and the rounded copy written. Bound by memory. Formulas:
// core/kernel_args.h. The kernels: kernels/cuda/shard_update.h.
#include "kernels/cuda/shard_update.h"

namespace fsdp::cuda {
namespace {

struct AdamRule {
  struct Coefficients {  // computed in double
    float keep, decay, step_size, correction2_root;
  };

  float* exp_avg;
  float* exp_avg_sq;
  double beta1, beta2;
  bool decoupled;
  float beta1_rest, beta2_narrow, beta2_rest, epsilon;

  __device__ Coefficients at(double rate, double t, double weight_decay) const {
    return {.keep = static_cast<float>(decoupled ? 1 - rate * weight_decay : 1.0),
            .decay = static_cast<float>(decoupled ? 0.0 : weight_decay),
            .step_size = static_cast<float>(rate / (1 - pow(beta1, t))),
            .correction2_root = static_cast<float>(sqrt(1 - pow(beta2, t)))};
  }

  template <int V>
  __device__ __forceinline__ void update(int64_t i, const Coefficients& k, float scale,
                                         float (&p)[V], float (&g)[V]) const {
    float m[V], v[V];
    load_widened<V>(exp_avg + i, m);
    load_widened<V>(exp_avg_sq + i, v);
#pragma unroll
    for (int j = 0; j < V; ++j) {
      g[j] = with_decay(g[j] * scale, p[j], k.decay);
      m[j] += beta1_rest * (g[j] - m[j]);
      v[j] = beta2_narrow * v[j] + (beta2_rest * g[j]) * g[j];
      const float denominator = sqrtf(v[j]) / k.correction2_root + epsilon;
      p[j] = p[j] * k.keep - k.step_size * (m[j] / denominator);
    }
    store_narrowed<V>(exp_avg + i, m);
    store_narrowed<V>(exp_avg_sq + i, v);
  }
};

}  // namespace

void CudaBackend::compute(Stream& stream, const AdamArgs& args) {
  const ShardUpdate& shard = args.shard;
  const Op op(*this, stream, args);
  const AdamRule rule = {.exp_avg = args.exp_avg.data_as<float>(),
                         .exp_avg_sq = args.exp_avg_sq.data_as<float>(),
                         .beta1 = args.beta1,
                         .beta2 = args.beta2,
                         .decoupled = args.decoupled,
                         .beta1_rest = static_cast<float>(1 - args.beta1),
                         .beta2_narrow = static_cast<float>(args.beta2),
                         .beta2_rest = static_cast<float>(1 - args.beta2),
                         .epsilon = static_cast<float>(args.epsilon)};
  update_shard(op, shard, rule, {&args.exp_avg, &args.exp_avg_sq});
}

}  // namespace fsdp::cuda
