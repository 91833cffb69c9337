// SGD over a flat shard in one pass, with and without momentum: master (and momentum buffer) are
// read and written, the gradient read and the rounded copy written. Bound by memory.
// Formulas: core/kernel_args.h. The kernels: kernels/cuda/shard_update.h.
#include "kernels/cuda/shard_update.h"

namespace fsdp::cuda {
namespace {

template <bool kMomentum>
struct SgdRule {
  struct Coefficients {
    float learning_rate, decay;
    int32_t first;  // step of the parameter
  };

  float* buffer;  // with momentum
  float momentum, fresh;
  bool nesterov;

  __device__ Coefficients at(double rate, double t, double weight_decay) const {
    return {.learning_rate = static_cast<float>(rate),
            .decay = static_cast<float>(weight_decay),
            .first = t == 1};
  }

  template <int V>
  __device__ __forceinline__ void update(int64_t i, const Coefficients& k, float scale,
                                         float (&p)[V], float (&g)[V]) const {
    [[maybe_unused]] float b[V];
    if constexpr (kMomentum) load_widened<V>(buffer + i, b);
#pragma unroll
    for (int j = 0; j < V; ++j) {
      g[j] = with_decay(g[j] * scale, p[j], k.decay);
      float step = g[j];
      if constexpr (kMomentum) {
        b[j] = k.first ? g[j] : momentum * b[j] + fresh * g[j];
        step = nesterov ? g[j] + momentum * b[j] : b[j];
      }
      p[j] -= k.learning_rate * step;
    }
    if constexpr (kMomentum) store_narrowed<V>(buffer + i, b);
  }
};

}  // namespace

void CudaBackend::compute(Stream& stream, const SgdArgs& args) {
  const ShardUpdate& shard = args.shard;
  const Tensor* buffer = args.momentum_buffer;
  const Op op(*this, stream, args);
  if (!buffer) {
    return update_shard(op, shard, SgdRule<false>{}, {&shard.master});
  }
  const SgdRule<true> rule = {.buffer = buffer->data_as<float>(),
                              .momentum = static_cast<float>(args.momentum),
                              .fresh = static_cast<float>(1 - args.dampening),
                              .nesterov = args.nesterov};
  update_shard(op, shard, rule, {buffer});
}

}  // namespace fsdp::cuda
