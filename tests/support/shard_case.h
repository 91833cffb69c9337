// The optimizers' kernels over one flat shard, for their tests on the CPU and on a GPU: the rules
// with their formulas, and three steps of a rule by its kernel or by its formula.
// PyTorch's recorded steps: tests/optim/optimizer_test.cpp.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/kernel_support.h"

namespace fsdp::test {

struct ShardCase {
  DType master = DType::kF32;
  DType grad = DType::kF32;
  std::optional<DType> copy;
  int64_t n = 0;
  int64_t offset = 0;  // elements before the shard in its storage: not aligned unless 0
  std::vector<ShardSegment> segments;
  int32_t skip = 0;
};

constexpr double kShardRate = 0.01, kShardScale = 0.25, kShardDecay = 0.1;
// Of three parameters: t before the first step, and which has a gradient in which step.
constexpr std::array<int32_t, 3> kFirstCounts = {6, 0, 0};
constexpr std::array<int32_t, 3> kShardPresent[] = {{1, 0, 1}, {1, 1, 1}, {1, 1, 0}};

struct ShardRule {
  using ElementStates = std::array<double, 2>;
  std::string name;
  std::string op;              // of errors
  std::vector<double> lowest;  // of each state: it begins at random in [lowest, 1)
  std::function<void(Backend&, const ShardUpdate&, std::vector<Tensor>& states)> kernel;
  // Of one element, in double. decay: 0 where the segment has none.
  std::function<void(double& p, double g, double decay, int t, ElementStates& s)> formula;
};

inline ShardRule adam_rule(bool decoupled) {
  constexpr double kBeta1 = 0.9, kBeta2 = 0.99, kEpsilon = 0.01;
  const std::string name = decoupled ? "adamw" : "adam";
  return {name,
          name,
          {-1, 0},
          [=](Backend& backend, const ShardUpdate& shard, std::vector<Tensor>& states) {
            backend.run(backend.compute_stream(), AdamArgs{.shard = shard,
                                                           .exp_avg = states[0],
                                                           .exp_avg_sq = states[1],
                                                           .beta1 = kBeta1,
                                                           .beta2 = kBeta2,
                                                           .epsilon = kEpsilon,
                                                           .decoupled = decoupled});
          },
          [=](double& p, double g, double decay, int t, ShardRule::ElementStates& s) {
            if (decoupled)
              p *= 1 - kShardRate * decay;
            else
              g += decay * p;
            s[0] += (1 - kBeta1) * (g - s[0]);
            s[1] = kBeta2 * s[1] + (1 - kBeta2) * g * g;
            const double root = std::sqrt(s[1]) / std::sqrt(1 - std::pow(kBeta2, t));
            p -= kShardRate / (1 - std::pow(kBeta1, t)) * s[0] / (root + kEpsilon);
          }};
}

inline ShardRule adamax_rule() {
  constexpr double kBeta1 = 0.9, kBeta2 = 0.99, kEpsilon = 0.01;
  return {"adamax",
          "adamax",
          {-1, 0},
          [=](Backend& backend, const ShardUpdate& shard, std::vector<Tensor>& states) {
            backend.run(backend.compute_stream(), AdamaxArgs{.shard = shard,
                                                             .exp_avg = states[0],
                                                             .exp_inf = states[1],
                                                             .beta1 = kBeta1,
                                                             .beta2 = kBeta2,
                                                             .epsilon = kEpsilon});
          },
          [=](double& p, double g, double decay, int t, ShardRule::ElementStates& s) {
            g += decay * p;
            s[0] += (1 - kBeta1) * (g - s[0]);
            s[1] = std::max(kBeta2 * s[1], std::abs(g) + kEpsilon);
            p -= kShardRate / (1 - std::pow(kBeta1, t)) * s[0] / s[1];
          }};
}

inline ShardRule adadelta_rule() {
  constexpr double kRho = 0.8, kEpsilon = 0.01;
  return {"adadelta",
          "adadelta",
          {0, 0},
          [=](Backend& backend, const ShardUpdate& shard, std::vector<Tensor>& states) {
            backend.run(backend.compute_stream(), AdadeltaArgs{.shard = shard,
                                                               .square_avg = states[0],
                                                               .acc_delta = states[1],
                                                               .rho = kRho,
                                                               .epsilon = kEpsilon});
          },
          [=](double& p, double g, double decay, int /*t*/, ShardRule::ElementStates& s) {
            g += decay * p;
            s[0] = kRho * s[0] + (1 - kRho) * g * g;
            const double delta = std::sqrt((s[1] + kEpsilon) / (s[0] + kEpsilon)) * g;
            s[1] = kRho * s[1] + (1 - kRho) * delta * delta;
            p -= kShardRate * delta;
          }};
}

inline ShardRule sgd_rule(std::string name, double momentum, double dampening, bool nesterov) {
  return {std::move(name),
          "sgd",
          {-1},
          [=](Backend& backend, const ShardUpdate& shard, std::vector<Tensor>& states) {
            backend.run(backend.compute_stream(),
                        SgdArgs{.shard = shard,
                                .momentum_buffer = momentum > 0 ? &states[0] : nullptr,
                                .momentum = momentum,
                                .dampening = dampening,
                                .nesterov = nesterov});
          },
          [=](double& p, double g, double decay, int t, ShardRule::ElementStates& s) {
            g += decay * p;
            if (momentum > 0) {
              s[0] = t == 1 ? g : momentum * s[0] + (1 - dampening) * g;
              g = nesterov ? g + momentum * s[0] : s[0];
            }
            p -= kShardRate * g;
          }};
}

inline std::vector<ShardRule> shard_rules() {
  return {adam_rule(true),
          adam_rule(false),
          adamax_rule(),
          adadelta_rule(),
          sgd_rule("sgd", 0, 0, false),
          sgd_rule("sgd with momentum", 0.9, 0, false),
          sgd_rule("sgd dampened", 0.8, 0.25, false),
          sgd_rule("sgd of Nesterov", 0.9, 0, true)};
}

struct ShardValues {
  Values master, copy, counts;
  std::vector<Values> states;
  bool operator==(const ShardValues&) const = default;
};

// Before the first step, rounded as the shard stores them.
inline ShardValues first_values(const ShardCase& c, const ShardRule& rule) {
  ShardValues first = {.master = rounded(random_values(c.n, 1), c.master),
                       .copy = rounded(random_values(c.n, 4), c.copy.value_or(DType::kF32)),
                       .counts = {kFirstCounts.begin(), kFirstCounts.end()},
                       .states = {}};
  for (const double low : rule.lowest) {
    const uint64_t seed = 2 + first.states.size();
    first.states.push_back(rounded(random_values(c.n, seed, low, 1), c.master));
  }
  return first;
}

inline Values gradient_of_step(const ShardCase& c, size_t step) {
  return rounded(random_values(c.n, 5 + step, -4, 4), c.grad);
}

inline ShardValues three_steps(Backend& backend, const ShardCase& c, const ShardRule& rule) {
  const ShardValues first = first_values(c, rule);
  const auto tensor = [&](DType dtype, const Values& values) {
    Values stored(static_cast<size_t>(c.offset), 0.0);
    stored.insert(stored.end(), values.begin(), values.end());
    const Tensor whole = make_tensor(backend, {c.offset + c.n}, dtype, stored);
    return whole.slice(c.offset, {c.n});
  };
  Tensor master = tensor(c.master, first.master);
  Tensor copy = tensor(c.copy.value_or(DType::kF32), first.copy);
  std::vector<Tensor> states;
  for (const Values& state : first.states) states.push_back(tensor(c.master, state));
  Tensor counts =
      Tensor::from_host<int32_t>(backend, {3}, {kFirstCounts.begin(), kFirstCounts.end()});
  const Tensor skip = Tensor::from_host<int32_t>(backend, {}, {c.skip});
  const Tensor rate = make_tensor(backend, {}, DType::kF64, {kShardRate});
  const Tensor scale = make_tensor(backend, {}, c.master, {kShardScale});
  for (size_t step = 0; step < std::size(kShardPresent); ++step) {
    const auto& flags = kShardPresent[step];
    const Tensor present = Tensor::from_host<int32_t>(backend, {3}, {flags.begin(), flags.end()});
    const Tensor grad = tensor(c.grad, gradient_of_step(c, step));
    backend.run(backend.compute_stream(), AdvanceStepsArgs{counts, present, skip});
    rule.kernel(backend,
                {.master = master,
                 .grad = grad,
                 .copy = c.copy ? &copy : nullptr,
                 .segments = c.segments,
                 .step_counts = counts,
                 .present = present,
                 .learning_rate = rate,
                 .gradient_scale = scale,
                 .skip = skip,
                 .weight_decay = kShardDecay},
                states);
  }
  ShardValues out = {.master = master.to_doubles(),
                     .copy = copy.to_doubles(),
                     .counts = counts.to_doubles(),
                     .states = {}};
  for (const Tensor& state : states) out.states.push_back(state.to_doubles());
  return out;
}

// The same by the rule's formula, in double. The copy: the master, which nobody has rounded.
inline ShardValues three_steps_by_formula(const ShardCase& c, const ShardRule& rule) {
  ShardValues out = first_values(c, rule);
  for (size_t step = 0; step < std::size(kShardPresent); ++step) {
    const Values grad = gradient_of_step(c, step);
    for (size_t i = 0; i < out.counts.size(); ++i) out.counts[i] += kShardPresent[step][i];
    for (const ShardSegment& segment : c.segments) {
      const auto parameter = static_cast<size_t>(segment.parameter);
      if (kShardPresent[step][parameter] == 0) continue;
      for (auto i = static_cast<size_t>(segment.begin); i < static_cast<size_t>(segment.end); ++i) {
        ShardRule::ElementStates s = {};
        for (size_t k = 0; k < out.states.size(); ++k) s[k] = out.states[k][i];
        rule.formula(out.master[i], kShardScale * grad[i], segment.decay ? kShardDecay : 0,
                     static_cast<int>(out.counts[parameter]), s);
        for (size_t k = 0; k < out.states.size(); ++k) out.states[k][i] = s[k];
        if (c.copy) out.copy[i] = out.master[i];
      }
    }
  }
  return out;
}

}  // namespace fsdp::test
