// Dynamic loss scaling: the overflow test, one read of the gradients, and the rule of the scale.
#include <cmath>
#include <limits>

#include "core/shard_args.h"
#include "kernels/cuda/elements.h"

namespace fsdp::cuda {
namespace {

// mapping: a thread per 32 bytes
// bytes:   those of x
// in f32:  the comparison; a NaN compares false with everything
// source:  core/kernel_args.h, OverflowArgs
template <typename T>
struct FindOverflow {
  const T* x;
  Accumulate<T> limit;
  int32_t* flag;

  template <int V>
  __device__ void at(int64_t i) const {
    Accumulate<T> values[V];
    load_widened<V>(x + i, values);
    bool beyond = false;
#pragma unroll
    for (int j = 0; j < V; ++j) beyond |= !(fabs(values[j]) <= limit);
    if (beyond) *flag = 1;  // whoever writes, writes the same
  }
};

struct ScaleState {
  LossScaleRule rule;
  const int32_t* overflow;
  float* scale;
  int32_t* counters;  // clean steps in a row, steps since a change, overflows since backoff
  int32_t* aborted;
};

// mapping: one thread
// bytes:   a few scalars
// in f64:  products, rounded to f32
// source:  torch.amp.GradScaler; fairseq, optim/dynamic_loss_scaler.py
__global__ void update_scale(ScaleState s) {
  int32_t &clean = s.counters[0], &since_change = s.counters[1], &overflows = s.counters[2];
  const LossScaleRule& rule = s.rule;
  since_change += 1;
  if (*s.overflow != kNotFinite) {
    clean += 1;
    if (clean < rule.interval) return;
    clean = since_change = 0;
    const float grown = static_cast<float>(*s.scale * rule.growth);
    if (std::isfinite(grown)) *s.scale = grown;
    return;
  }
  clean = 0;
  overflows += 1;
  if (static_cast<double>(overflows) / since_change < rule.tolerance) return;
  const float before = *s.scale;
  *s.scale = static_cast<float>(fmax(before * rule.backoff, rule.floor));
  since_change = overflows = 0;
  if (*s.scale > rule.minimum) return;
  *s.scale = before;
  *s.aborted = 1;
}

}  // namespace

template <>
void CudaBackend::compute(Stream& stream, const OverflowArgs& args) {
  const Op op(*this, stream, args);
  dispatch_device_wide(args.x.dtype(), op.name(), [&]<typename T>(TypeTag<T>) {
    using Limit = Accumulate<T>;
    // An f32 limit must not round to infinity when f64's is asked for.
    const double largest = std::numeric_limits<Limit>::max();
    for_each_element<2 * run_of<T>()>(
        op, args.x.numel(),
        FindOverflow<T>{args.x.data_as<T>(), static_cast<Limit>(std::min(args.limit, largest)),
                        args.flag.data_as<int32_t>()},
        {args.x.data()});
  });
}

template <>
void CudaBackend::compute(Stream& stream, const LossScaleArgs& args) {
  const Op op(*this, stream, args);
  launch(update_scale, Grid(1), 1, 0, op,
         ScaleState{args.rule, args.overflow.data_as<int32_t>(), args.scale.data_as<float>(),
                    args.counters.data_as<int32_t>(), args.aborted.data_as<int32_t>()});
}

}  // namespace fsdp::cuda
