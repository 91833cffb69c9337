// Arguments of the kernels on flat buffers: casts, initial values, the optimizer, norms of
// gradients, and the few scalars that a step decides by. As core/layer_args.h.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/shard_values.h"
#include "core/tensor_role.h"

namespace fsdp {

class Tensor;

struct CastArgs {
  const Tensor& x;
  Tensor& out;  // any two floating dtypes

  static constexpr std::string_view name() { return "cast"; }
  template <typename V>
  CastArgs visit(V& v) const {
    return {v(kIn.size(), x), v(kOut.size(), out)};
  }
};

struct DivideArgs {
  Tensor& x;  // in place
  double divisor;

  static constexpr std::string_view name() { return "divide"; }
  template <typename V>
  DivideArgs visit(V& v) const {
    return {v(kInOut.size(), x), divisor};
  }
};

// x[i] = mean + deviation * normal_at(seed, name_hash, first_index + i); deviation 0: a constant.
struct FillNormalArgs {
  Tensor& x;
  double mean;
  double deviation;
  uint64_t seed;
  uint64_t name_hash;
  int64_t first_index;

  static constexpr std::string_view name() { return "fill_normal"; }
  std::string words() const { return deviation == 0 ? "a constant" : ""; }
  template <typename V>
  FillNormalArgs visit(V& v) const {
    return {v(kOut.size(), x), mean, deviation, seed, name_hash, first_index};
  }
};

// out[i] = x[i] rounded to bf16, up or down by chance, so that the mean over many updates is x[i];
// what bf16 holds exactly stays. The draw is of seed, update, parameter and element (core/rng.h,
// RoundingStream): no sharding changes it. Elements outside the runs are left alone.
struct StochasticRoundArgs {
  const Tensor& x;                        // (n), f32
  Tensor& out;                            // (n), bf16; apart from x
  const std::vector<ParameterRun>& runs;  // disjoint
  uint64_t seed = 0;
  uint32_t update = 0;  // how often the optimizer has stepped

  static constexpr std::string_view name() { return "round_stochastically"; }
  template <typename V>
  StochasticRoundArgs visit(V& v) const {
    return {.x = v(kIn.size(), x),
            .out = v(kOut.size(), out),
            .runs = v.list(runs),
            .seed = seed,
            .update = update};
  }
};

// What every optimizer's kernel reads and writes of a flat shard. The whole update is skipped on
// the device when *skip != 0; a parameter whose present flag is 0 (no gradient on any rank) stands
// still. step_counts must already hold this step's t (see AdvanceStepsArgs).
// Master and states may keep 16 bits between two steps. An element's values are then widened, take
// the step of the accumulation dtype, and are rounded: to nearest, or to bf16 by chance. A draw is
// of seed, update, name and element (core/rng.h, RoundingStream): no sharding changes it.
struct ShardUpdate {
  Tensor& master;          // (n), f32 or f64; f32's may be bf16 or f16
  const Tensor& grad;      // (n), any floating dtype; g in the formulas is grad * (*gradient_scale)
  Tensor* copy = nullptr;  // (n): the new master, as it is kept, in the dtype of the resident copy
  const std::vector<ShardSegment>& segments;
  const Tensor& step_counts;     // (parameters), i32: t of each parameter
  const Tensor& present;         // (parameters), i32: 0: no gradient in this step
  const Tensor& learning_rate;   // (), f64
  const Tensor& gradient_scale;  // (), accumulation dtype: clip coefficient (and 1 / loss scale)
  const Tensor& skip;            // (), i32
  double weight_decay;           // of segments with the decay flag
  // By value (the master, then the states), by parameter: hashes of the names that the draws are
  // keyed by; none of a value that is rounded to nearest. Null: of no value.
  const std::vector<std::vector<uint64_t>>* draws = nullptr;
  uint64_t seed = 0;
  uint32_t update = 0;  // how often the optimizer has stepped

  template <typename V>
  ShardUpdate visit(V& v) const {
    return {.master = v(kInOut.size(), master),
            .grad = v(kIn.size(), grad),
            .copy = v(kOut.says("copy"), copy),
            .segments = v.list(segments),
            .step_counts = v(kIn.small().ones(), step_counts),
            .present = v(kIn.small().ones(), present),
            .learning_rate = v(kIn.small().zeros(), learning_rate),
            .gradient_scale = v(kIn.small().ones(), gradient_scale),
            .skip = v(kIn.small().zeros(), skip),
            .weight_decay = weight_decay,
            .draws = draws ? &v.list(*draws) : nullptr,
            .seed = seed,
            .update = update};
  }
};

// One step of a rule (core/optimizer_rules/rule.h).
template <typename Rule>
struct UpdateArgs {
  static constexpr size_t kMostStates = Rule::kStates.size();
  ShardUpdate shard;
  std::array<Tensor*, kMostStates> state = {};  // (n) each; null of a rule that keeps none
  Rule rule = {};

  static constexpr std::string_view name() { return Rule::kName; }
  template <typename V>
  UpdateArgs visit(V& v) const {
    UpdateArgs out = {.shard = shard.visit(v), .rule = rule};
    TensorRole role = kInOut.ones();
    if constexpr (requires { Rule::kStateWord; }) role = role.says(Rule::kStateWord);
    for (size_t i = 0; i < kMostStates; ++i) out.state[i] = v(role, state[i]);
    return out;
  }
};

// step_counts[i] += present[i] unless *skip != 0; all i32.
struct AdvanceStepsArgs {
  Tensor& step_counts;
  const Tensor& present;
  const Tensor& skip;

  static constexpr std::string_view name() { return "advance_steps"; }
  template <typename V>
  AdvanceStepsArgs visit(V& v) const {
    return {v(kInOut.small().size(), step_counts), v(kIn.small().ones(), present),
            v(kIn.small().zeros(), skip)};
  }
};

// out (+)= sum over the spans of |x|^p in the accumulation dtype, in fixed blocks and order;
// p = infinity: the maximum. An element that is not finite makes the result not finite.
// With `first_blocks`: the sum of the k-th kNormBlock elements of span s goes to
// out[first_blocks[s] + k] instead.
struct PowerSumArgs {
  const Tensor& x;                                        // (n)
  const std::vector<std::pair<int64_t, int64_t>>& spans;  // [begin, end): leaves padding out
  double power;
  Tensor& out;  // () or (blocks), f64
  bool accumulate = false;
  const std::vector<int64_t>* first_blocks = nullptr;  // by span

  static constexpr std::string_view name() { return "power_sum"; }
  std::string words() const;
  template <typename V>
  PowerSumArgs visit(V& v) const {
    return {.x = v(kIn.size(), x),
            .spans = v.list(spans),
            .power = power,
            .out = v(kInOut.small().zeros(), out),
            .accumulate = accumulate,
            .first_blocks = first_blocks ? &v.list(*first_blocks) : nullptr};
  }
};

// From the global sum of |g|^p: norm = sum^(1/p) / scale (p = inf: sum itself / scale);
// coefficient = min(1, max_norm / (norm + 1e-6)) / scale, or 1 / scale when max_norm <= 0;
// skip: why the gradients are of no use, a StepSkip: kNotFinite also when *overflow != 0, kSpike
// when norm > skip_above.
struct ClipArgs {
  const Tensor& power_sum;  // (), f64
  double power;
  double max_norm;
  double skip_above = std::numeric_limits<double>::infinity();
  const Tensor* loss_scale = nullptr;  // (), f32: what the gradients are multiplied by; null: 1
  const Tensor* overflow = nullptr;    // (), i32; null: 0
  Tensor& norm;                        // (), f64
  Tensor& coefficient;                 // (), accumulation dtype of the gradients
  Tensor& skip;                        // (), i32

  static constexpr std::string_view name() { return "clip_coefficient"; }
  template <typename V>
  ClipArgs visit(V& v) const {
    return {.power_sum = v(kIn.small().size(), power_sum),
            .power = power,
            .max_norm = max_norm,
            .skip_above = skip_above,
            .loss_scale = v(kIn.small().ones(), loss_scale),
            .overflow = v(kIn.small().zeros(), overflow),
            .norm = v(kOut.small(), norm),
            .coefficient = v(kOut.small().ones(), coefficient),
            .skip = v(kOut.small().zeros(), skip)};
  }
};

// *flag = 1 when an element of x is not finite or larger than `limit`; else left as it is.
struct OverflowArgs {
  const Tensor& x;
  double limit;
  Tensor& flag;  // (), i32

  static constexpr std::string_view name() { return "find_overflow"; }
  template <typename V>
  OverflowArgs visit(V& v) const {
    return {.x = v(kIn.size(), x), .limit = limit, .flag = v(kInOut.small().zeros(), flag)};
  }
};

// One step of a LossScaleRule.
struct LossScaleArgs {
  LossScaleRule rule;
  const Tensor& overflow;  // (), i32: a StepSkip; a spike is no overflow
  Tensor& scale;           // (), f32; products are formed in f64 and rounded
  Tensor&
      counters;     // (3), i32: clean steps in a row, steps since a change, overflows since backoff
  Tensor& aborted;  // (), i32

  static constexpr std::string_view name() { return "update_loss_scale"; }
  template <typename V>
  LossScaleArgs visit(V& v) const {
    return {.rule = rule,
            .overflow = v(kIn.small().zeros(), overflow),
            .scale = v(kInOut.small().size(), scale),
            .counters = v(kInOut.small().zeros(), counters),
            .aborted = v(kInOut.small().zeros(), aborted)};
  }
};

}  // namespace fsdp
