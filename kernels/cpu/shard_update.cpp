// The optimizers' rules (core/optimizer_rules) over a flat shard: one pass that reads and writes
// the master and the rule's states and reads the gradient (of AdamW in f32 28 bytes a parameter),
// plus the rounded copy. The walk goes segment by segment. Values of 16 bits are widened into
// buffers that stay in the cache, stepped there, and rounded back.
#include <algorithm>
#include <utility>
#include <vector>

#include "core/optimizer_rules/list.h"
#include "core/shard_args.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/stochastic_round.h"

namespace fsdp::cpu {
namespace {

constexpr int64_t kGrain = int64_t{1} << 15;  // elements that one thread takes at a time
constexpr int64_t kRun = 2048;                // stepped, then rounded while in cache

template <typename Rule, typename M, typename G, typename... State>
void step_run(const typename Rule::template Numbers<M> k, M scale, M* master, const G* grad,
              int64_t n, State*... state) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    std::array<M, Rule::kStates.size()> s = {state[i]...};
    Rule::step(k, M(grad[i]) * scale, master[i], s);
    [[maybe_unused]] size_t v = 0;
    ((state[i] = s[v++]), ...);
  }
}

// The master, or one of the states. M: the type of the step.
template <typename M>
struct ShardValue {
  void* data;
  DType dtype;
  std::vector<uint64_t> draws;  // by parameter; empty: rounded to nearest

  bool is_narrow() const { return dtype != dtype_of<M>(); }
  // Elements [begin, begin + n): where they are, or widened into the buffer.
  M* widened(std::string_view op, int64_t begin, int64_t n, M* buffer) const {
    if (!is_narrow()) return static_cast<M*>(data) + begin;
    dispatch_floating(dtype, op, [&]<typename T>(TypeTag<T>) {
      convert(static_cast<const T*>(data) + begin, buffer, n);
    });
    return buffer;
  }
  // Rounds them back. `first`: element of the parameter that is at `begin`.
  void round(std::string_view op, int64_t begin, int64_t n, const M* buffer, int32_t parameter,
             int64_t first, const RoundingStream& stream) const {
    if constexpr (std::is_same_v<M, float>) {
      if (!draws.empty()) {
        return round_by_chance(stream, draws[static_cast<size_t>(parameter)], first, buffer,
                               static_cast<BFloat16*>(data) + begin, n);
      }
    }
    dispatch_floating(dtype, op, [&]<typename T>(TypeTag<T>) {
      convert(buffer, static_cast<T*>(data) + begin, n);
    });
  }
};

// v: 0, 1, ... for each state that is kept.
template <typename Rule, typename M, typename G, size_t... v>
class ShardWalk {
 public:
  ShardWalk(const ShardUpdate& args, const std::array<Tensor*, Rule::kStates.size()>& state,
            const Rule& rule)
      : grad_(args.grad.data_as<G>()),
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
        stream_(args.seed, args.update),
        rule_(rule) {
    for (const Tensor* tensor : {&args.master, static_cast<Tensor*>(state[v])...}) {
      const size_t value = values_.size();
      values_.push_back({tensor->data(), tensor->dtype(),
                         args.draws ? (*args.draws)[value] : std::vector<uint64_t>()});
    }
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
  static constexpr std::string_view kOp = Rule::kName;

  // Elements [begin, end) of one segment.
  void update(const ShardSegment& segment, int64_t begin, int64_t end) const {
    if (present_[segment.parameter] == 0) return;
    const auto k = rule_.template at<M>(*learning_rate_, step_counts_[segment.parameter],
                                        segment.decay ? weight_decay_ : 0.0);
    M buffers[1 + sizeof...(v)][kRun];
    for (int64_t i = begin; i < end; i += kRun) {
      const int64_t run = std::min(kRun, end - i);
      M* const values[] = {values_[0].widened(kOp, i, run, buffers[0]),
                           values_[1 + v].widened(kOp, i, run, buffers[1 + v])...};
      wide_loop([&](auto) {
        step_run<Rule>(k, *gradient_scale_, values[0], grad_ + i, run, values[1 + v]...);
      });
      for (size_t value = 0; value <= sizeof...(v); ++value) {
        if (!values_[value].is_narrow()) continue;
        values_[value].round(kOp, i, run, values[value], segment.parameter,
                             segment.first + i - segment.begin, stream_);
      }
      if (copy_) copy(i, run, buffers[0]);
    }
  }

  // Of the master as it is kept.
  void copy(int64_t begin, int64_t n, M* buffer) const {
    const M* master = values_[0].widened(kOp, begin, n, buffer);
    dispatch_floating(copy_dtype_, kOp, [&]<typename C>(TypeTag<C>) {
      convert(master, static_cast<C*>(copy_) + begin, n);
    });
  }

  std::vector<ShardValue<M>> values_;  // the master, then the states
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
  RoundingStream stream_;
  Rule rule_;
};

template <typename Rule>
void update_shard(CpuBackend& backend, Stream& stream, const UpdateArgs<Rule>& args) {
  const ShardUpdate& shard = args.shard;
  const auto enqueue = [&]<size_t... v>(std::index_sequence<v...>) {
    dispatch_accumulation(
        accumulation_dtype(shard.master.dtype()), args.name(), [&]<typename M>(TypeTag<M>) {
          dispatch_floating(shard.grad.dtype(), args.name(), [&]<typename G>(TypeTag<G>) {
            backend.enqueue(stream, args.name(), 0,
                            ShardWalk<Rule, M, G, v...>(shard, args.state, args.rule));
          });
        });
  };
  if constexpr (requires { args.rule.keeps_state(); }) {
    if (!args.rule.keeps_state()) return enqueue(std::index_sequence<>());
  }
  enqueue(std::make_index_sequence<Rule::kStates.size()>());
}

}  // namespace

#define FSDP_COMPUTE(_, Rule)                                                     \
  template <>                                                                     \
  void CpuBackend::compute(Stream& stream, const UpdateArgs<rules::Rule>& args) { \
    update_shard(*this, stream, args);                                            \
  }
FSDP_RULES(FSDP_COMPUTE, )
#undef FSDP_COMPUTE

}  // namespace fsdp::cpu
