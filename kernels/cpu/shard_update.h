// What the optimizers' kernels share: the walk over a flat shard, segment by segment, and the
// rounded copy. A rule (adam.cpp, adamax.cpp, adadelta.cpp, sgd.cpp) brings the arithmetic:
//   Coefficients   scalars of one parameter at one step
//   Coefficients at(double learning_rate, int32_t t, double weight_decay, M gradient_scale) const
//                  weight_decay: 0 where the segment has none
//   void update(const Coefficients&, M* master, const G* grad, int64_t begin, int64_t n) const
//                  elements [begin, begin + n) of the shard
#pragma once

#include <algorithm>
#include <vector>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/wide_loop.h"

namespace fsdp::cpu {

// g + decay * p, and g itself where there is no decay, whatever p is.
template <typename M>
inline M with_decay(M g, M p, M decay) {
  return decay == 0 ? g : g + decay * p;
}

template <typename M, typename G, typename Rule>
class ShardWalk {
 public:
  ShardWalk(std::string_view op, const ShardUpdate& args, const Rule& rule)
      : op_(op),
        master_(args.master.data_as<M>()),
        grad_(args.grad.data_as<G>()),
        copy_(args.copy ? args.copy->data() : nullptr),
        copy_dtype_(args.copy ? args.copy->dtype() : DType::kF32),
        segments_(args.segments),
        step_counts_(args.step_counts.data_as<int32_t>()),
        present_(args.present.data_as<int32_t>()),
        learning_rate_(args.learning_rate.data_as<double>()),
        gradient_scale_(args.gradient_scale.data_as<M>()),
        skip_(args.skip.data_as<int32_t>()),
        n_(args.master.numel()),
        weight_decay_(args.weight_decay),
        rule_(rule) {
    std::sort(segments_.begin(), segments_.end(),
              [](const ShardSegment& a, const ShardSegment& b) { return a.begin < b.begin; });
  }

  void operator()(Worker& worker) const {
    if (*skip_ != 0) return;
    worker.team.parallel_for(n_, kGrain, [&](int64_t begin, int64_t end) {
      auto segment = std::partition_point(segments_.begin(), segments_.end(),
                                          [&](const ShardSegment& s) { return s.end <= begin; });
      for (; segment != segments_.end() && segment->begin < end; ++segment) {
        update(*segment, std::max(begin, segment->begin), std::min(end, segment->end));
      }
    });
  }

 private:
  static constexpr int64_t kGrain = int64_t{1} << 15;  // elements that one thread takes at a time
  static constexpr int64_t kRun = 2048;  // updated, then rounded to the copy while in cache

  // Elements [begin, end) of one segment.
  void update(const ShardSegment& segment, int64_t begin, int64_t end) const {
    if (present_[segment.parameter] == 0) return;
    const auto k = rule_.at(*learning_rate_, step_counts_[segment.parameter],
                            segment.decay ? weight_decay_ : 0.0, *gradient_scale_);
    for (int64_t i = begin; i < end; i += kRun) {
      const int64_t run = std::min(kRun, end - i);
      rule_.update(k, master_ + i, grad_ + i, i, run);
      if (!copy_) continue;
      dispatch_floating(copy_dtype_, op_, [&]<typename C>(TypeTag<C>) {
        convert(master_ + i, static_cast<C*>(copy_) + i, run);
      });
    }
  }

  std::string_view op_;  // a literal
  M* master_;
  const G* grad_;
  void* copy_;  // or null
  DType copy_dtype_;
  std::vector<ShardSegment> segments_;  // by begin
  const int32_t* step_counts_;
  const int32_t* present_;
  const double* learning_rate_;
  const M* gradient_scale_;
  const int32_t* skip_;
  int64_t n_;
  double weight_decay_;
  Rule rule_;
};

// Enqueues the walk with rule_of(TypeTag<M>{}), M the type of the master.
template <typename RuleOf>
void update_shard(CpuBackend& backend, Stream& stream, std::string_view op, const ShardUpdate& args,
                  const RuleOf& rule_of) {
  dispatch_accumulation(args.master.dtype(), op, [&]<typename M>(TypeTag<M> master) {
    dispatch_floating(args.grad.dtype(), op, [&]<typename G>(TypeTag<G>) {
      const auto rule = rule_of(master);
      backend.enqueue(stream, op, 0, ShardWalk<M, G, decltype(rule_of(master))>(op, args, rule));
    });
  });
}

}  // namespace fsdp::cpu
