// AdamW over a flat shard: one pass that reads and writes master, exp_avg and exp_avg_sq and reads
// the gradient (28 bytes a parameter in f32), plus the rounded copy. Also the step counters.
#include <cmath>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/wide_loop.h"

namespace fsdp::cpu {
namespace {

constexpr int64_t kGrain = int64_t{1} << 15;  // elements that one thread takes at a time
constexpr int64_t kRun = 2048;                // updated, then rounded to the copy while in cache

// Scalars of one parameter at one step, computed in double.
template <typename M>
struct Coefficients {
  M keep, beta1_rest, beta2, beta2_rest, step_size, correction2_root, epsilon, gradient_scale;
};

struct Hyperparameters {
  double beta1, beta2, epsilon, weight_decay;

  template <typename M>
  Coefficients<M> at(double learning_rate, int32_t t, bool decay, M gradient_scale) const {
    return {.keep = static_cast<M>(decay ? 1 - learning_rate * weight_decay : 1.0),
            .beta1_rest = static_cast<M>(1 - beta1),
            .beta2 = static_cast<M>(beta2),
            .beta2_rest = static_cast<M>(1 - beta2),
            .step_size = static_cast<M>(learning_rate / (1 - std::pow(beta1, t))),
            .correction2_root = static_cast<M>(std::sqrt(1 - std::pow(beta2, t))),
            .epsilon = static_cast<M>(epsilon),
            .gradient_scale = gradient_scale};
  }
};

template <typename M, typename G>
void update_run(const Coefficients<M> k, M* master, const G* grad, M* exp_avg, M* exp_avg_sq,
                int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const M g = M(grad[i]) * k.gradient_scale;
    const M m = exp_avg[i] + k.beta1_rest * (g - exp_avg[i]);
    const M v = k.beta2 * exp_avg_sq[i] + (k.beta2_rest * g) * g;
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    const M denominator = std::sqrt(v) / k.correction2_root + k.epsilon;
    master[i] = master[i] * k.keep - k.step_size * (m / denominator);
  }
}

template <typename M, typename G>
struct AdamWShard {
  M* master;
  const G* grad;
  M* exp_avg;
  M* exp_avg_sq;
  void* copy;  // or null
  DType copy_dtype;
  std::vector<ShardSegment> segments;  // by begin
  const int32_t* step_counts;
  const int32_t* present;
  const double* learning_rate;
  const M* gradient_scale;
  const int32_t* skip;
  int64_t n;
  Hyperparameters hyperparameters;

  // Elements [begin, end) of one segment.
  void update(const ShardSegment& segment, int64_t begin, int64_t end) const {
    if (present[segment.parameter] == 0) return;
    const auto k = hyperparameters.at<M>(*learning_rate, step_counts[segment.parameter],
                                         segment.decay, *gradient_scale);
    for (int64_t i = begin; i < end; i += kRun) {
      const int64_t run = std::min(kRun, end - i);
      wide_loop([&](auto) {
        update_run(k, master + i, grad + i, exp_avg + i, exp_avg_sq + i, run);
      });
      if (!copy) continue;
      dispatch_floating(copy_dtype, "adamw", [&]<typename C>(TypeTag<C>) {
        convert(master + i, static_cast<C*>(copy) + i, run);
      });
    }
  }

  void operator()(Worker& worker) const {
    if (*skip != 0) return;
    worker.team.parallel_for(n, kGrain, [&](int64_t begin, int64_t end) {
      auto segment = std::partition_point(segments.begin(), segments.end(),
                                          [&](const ShardSegment& s) { return s.end <= begin; });
      for (; segment != segments.end() && segment->begin < end; ++segment) {
        update(*segment, std::max(begin, segment->begin), std::min(end, segment->end));
      }
    });
  }
};

}  // namespace

void CpuBackend::adamw(Stream& stream, const AdamWArgs& args) {
  dispatch_accumulation(args.master.dtype(), "adamw", [&]<typename M>(TypeTag<M>) {
    dispatch_floating(args.grad.dtype(), "adamw", [&]<typename G>(TypeTag<G>) {
      AdamWShard<M, G> shard = {
          .master = args.master.data_as<M>(),
          .grad = args.grad.data_as<G>(),
          .exp_avg = args.exp_avg.data_as<M>(),
          .exp_avg_sq = args.exp_avg_sq.data_as<M>(),
          .copy = args.copy ? args.copy->data() : nullptr,
          .copy_dtype = args.copy ? args.copy->dtype() : DType::kF32,
          .segments = args.segments,
          .step_counts = args.step_counts.data_as<int32_t>(),
          .present = args.present.data_as<int32_t>(),
          .learning_rate = args.learning_rate.data_as<double>(),
          .gradient_scale = args.gradient_scale.data_as<M>(),
          .skip = args.skip.data_as<int32_t>(),
          .n = args.master.numel(),
          .hyperparameters = {args.beta1, args.beta2, args.epsilon, args.weight_decay},
      };
      std::sort(shard.segments.begin(), shard.segments.end(),
                [](const ShardSegment& a, const ShardSegment& b) { return a.begin < b.begin; });
      enqueue(stream, "adamw", 0, std::move(shard));
    });
  });
}

void CpuBackend::advance_steps(Stream& stream, Tensor& step_counts, const Tensor& present,
                               const Tensor& skip) {
  enqueue(stream, "advance_steps", 0,
          [counts = step_counts.data_as<int32_t>(), present = present.data_as<int32_t>(),
           skip = skip.data_as<int32_t>(), n = step_counts.numel()](Worker&) {
            if (*skip != 0) return;
            for (int64_t i = 0; i < n; ++i) counts[i] += present[i];
          });
}

}  // namespace fsdp::cpu
