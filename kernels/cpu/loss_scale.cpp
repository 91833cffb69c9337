// Dynamic loss scaling: the overflow test, one read of the gradients, and the rule of the scale.
#include <algorithm>
#include <atomic>
#include <cmath>

#include "core/shard_args.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/wide_loop.h"

namespace fsdp::cpu {
namespace {

constexpr int64_t kGrain = int64_t{1} << 15;  // elements that one thread takes at a time

// A NaN compares false with everything.
template <typename T>
bool any_beyond(const T* x, int64_t n, Accumulate<T> limit) {
  int beyond = 0;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    beyond |= !(std::abs(static_cast<Accumulate<T>>(x[i])) <= limit);
  }
  return beyond != 0;
}

struct ScaleState {
  LossScaleRule rule;
  float* scale;
  int32_t* clean;
  int32_t* since_change;
  int32_t* overflows;
  int32_t* aborted;

  void after_overflow() const {
    *clean = 0;
    *overflows += 1;
    if (double(*overflows) / *since_change < rule.tolerance) return;
    const float before = *scale;
    *scale = static_cast<float>(std::max(before * rule.backoff, rule.floor));
    *since_change = 0;
    *overflows = 0;
    if (*scale > rule.minimum) return;
    *scale = before;
    *aborted = 1;
  }

  void after_clean_step() const {
    *clean += 1;
    if (*clean < rule.interval) return;
    *clean = 0;
    *since_change = 0;
    const float grown = static_cast<float>(*scale * rule.growth);
    if (std::isfinite(grown)) *scale = grown;
  }
};

}  // namespace

template <>
void CpuBackend::compute(Stream& stream, const OverflowArgs& args) {
  dispatch_floating(args.x.dtype(), "find_overflow", [&]<typename T>(TypeTag<T>) {
    // An f32 limit must not round to infinity when f64's is asked for.
    using Limit = Accumulate<T>;
    const auto limit = static_cast<Limit>(
        std::min(args.limit, static_cast<double>(std::numeric_limits<Limit>::max())));
    enqueue(stream, "find_overflow", 0,
            [x = args.x.data_as<T>(), n = args.x.numel(), limit,
             flag = args.flag.data_as<int32_t>()](Worker& worker) {
              std::atomic<bool> found = false;
              worker.team.parallel_for(n, kGrain, [&](int64_t begin, int64_t end) {
                wide_loop([&](auto) {
                  if (any_beyond(x + begin, end - begin, limit)) found = true;
                });
              });
              if (found) *flag = 1;
            });
  });
}

template <>
void CpuBackend::compute(Stream& stream, const LossScaleArgs& args) {
  int32_t* counters = args.counters.data_as<int32_t>();
  enqueue(stream, "update_loss_scale", 0,
          [state = ScaleState{args.rule, args.scale.data_as<float>(), counters, counters + 1,
                              counters + 2, args.aborted.data_as<int32_t>()},
           overflow = args.overflow.data_as<int32_t>()](Worker&) {
            *state.since_change += 1;
            *overflow == kNotFinite ? state.after_overflow() : state.after_clean_step();
          });
}

}  // namespace fsdp::cpu
