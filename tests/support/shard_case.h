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

#include "core/optimizer_rules/list.h"
#include "core/shard_args.h"
#include "tests/support/kernel_support.h"

namespace fsdp::test {

struct ShardCase {
  DType master = DType::kF32;  // also bf16, f16
  DType grad = DType::kF32;
  std::optional<DType> copy;
  int64_t n = 0;
  int64_t offset = 0;  // elements before the shard in its storage: not aligned unless 0
  std::vector<ShardSegment> segments;
  int32_t skip = 0;
  std::optional<DType> state = std::nullopt;  // none: the accumulation dtype of the master
  bool by_chance = false;                     // what is bf16 is rounded so

  DType wide() const { return accumulation_dtype(master); }
  DType state_dtype() const { return state.value_or(wide()); }
};

constexpr double kShardRate = 0.01, kShardScale = 0.3, kShardDecay = 0.1;
// Of three parameters: t before the first step, and which has a gradient in which step.
constexpr std::array<int32_t, 3> kFirstCounts = {6, 0, 0};
constexpr std::array<int32_t, 3> kShardPresent[] = {{1, 0, 1}, {1, 1, 1}, {1, 1, 0}};

struct ShardRule {
  using ElementStates = std::array<double, 2>;
  // Of one element, in double. decay: 0 where the segment has none.
  using Formula = std::function<void(double& p, double g, double decay, int t, ElementStates& s)>;
  std::string name;
  std::string op;              // of errors
  std::vector<double> lowest;  // of each state: it begins at random in [lowest, 1)
  std::vector<std::string_view> states;
  std::function<void(Backend&, const ShardUpdate&, std::vector<Tensor>& states)> kernel;
  Formula formula;
  Formula in_f32;  // the same in f32, each fma written out: no bit is left to a compiler
};

// step(p, g, decay, t, states) in f32 gives the new p. coupled: decay goes into g first.
template <typename Step>
ShardRule::Formula narrowed(bool coupled, Step&& step) {
  return [=](double& p, double g, double decay, int t, ShardRule::ElementStates& s) {
    const auto old = static_cast<float>(p);
    auto narrow = static_cast<float>(g);
    if (coupled && decay != 0) narrow = std::fma(static_cast<float>(decay), old, narrow);
    std::array<float, 2> states = {static_cast<float>(s[0]), static_cast<float>(s[1])};
    p = step(old, narrow, decay, t, states);
    s = {states[0], states[1]};
  };
}

// `rule` with its kernel; as many states as it keeps.
template <typename Rule>
ShardRule shard_rule(std::string name, const Rule& rule, std::vector<double> lowest,
                     ShardRule::Formula formula, ShardRule::Formula in_f32) {
  return {std::move(name),
          std::string(Rule::kName),
          std::move(lowest),
          {Rule::kStates.begin(), Rule::kStates.begin() + rules::states_of(rule)},
          [=](Backend& backend, const ShardUpdate& shard, std::vector<Tensor>& states) {
            UpdateArgs<Rule> update = {.shard = shard, .rule = rule};
            for (size_t i = 0; i < rules::states_of(rule); ++i) update.state[i] = &states[i];
            backend.run(backend.compute_stream(), update);
          },
          std::move(formula),
          std::move(in_f32)};
}

using Floats = std::array<float, 2>;

template <bool kDecoupled>
ShardRule adam_rule() {
  using Rule = rules::AdamRule<kDecoupled>;
  constexpr double kBeta1 = 0.9, kBeta2 = 0.99, kEpsilon = 0.01;
  return shard_rule(
      std::string(Rule::kName), Rule{.beta1 = kBeta1, .beta2 = kBeta2, .epsilon = kEpsilon},
      {-1, 0},
      [=](double& p, double g, double decay, int t, ShardRule::ElementStates& s) {
        if (kDecoupled)
          p *= 1 - kShardRate * decay;
        else
          g += decay * p;
        s[0] += (1 - kBeta1) * (g - s[0]);
        s[1] = kBeta2 * s[1] + (1 - kBeta2) * g * g;
        const double root = std::sqrt(s[1]) / std::sqrt(1 - std::pow(kBeta2, t));
        p -= kShardRate / (1 - std::pow(kBeta1, t)) * s[0] / (root + kEpsilon);
      },
      narrowed(!kDecoupled, [=](float p, float g, double decay, int t, Floats& s) {
        const float keep = kDecoupled ? 1 - kShardRate * decay : 1;
        const float step = kShardRate / (1 - std::pow(kBeta1, t));
        const float root = std::sqrt(1 - std::pow(kBeta2, t)), epsilon = kEpsilon;
        const float fresh = 1 - kBeta1, kept = kBeta2, squared = 1 - kBeta2;
        s[0] = std::fma(fresh, g - s[0], s[0]);
        s[1] = std::fma(kept, s[1], (squared * g) * g);
        return std::fma(-step, s[0] / (std::sqrt(s[1]) / root + epsilon), p * keep);
      }));
}

inline ShardRule adamax_rule() {
  constexpr double kBeta1 = 0.9, kBeta2 = 0.99, kEpsilon = 0.01;
  return shard_rule(
      "adamax", rules::Adamax{.beta1 = kBeta1, .beta2 = kBeta2, .epsilon = kEpsilon}, {-1, 0},
      [=](double& p, double g, double decay, int t, ShardRule::ElementStates& s) {
        g += decay * p;
        s[0] += (1 - kBeta1) * (g - s[0]);
        s[1] = std::max(kBeta2 * s[1], std::abs(g) + kEpsilon);
        p -= kShardRate / (1 - std::pow(kBeta1, t)) * s[0] / s[1];
      },
      narrowed(true, [=](float p, float g, double, int t, Floats& s) {
        const float step = kShardRate / (1 - std::pow(kBeta1, t));
        const float fresh = 1 - kBeta1, kept = kBeta2, epsilon = kEpsilon;
        s[0] = std::fma(fresh, g - s[0], s[0]);
        s[1] = std::max(kept * s[1], std::abs(g) + epsilon);
        return std::fma(-step, s[0] / s[1], p);
      }));
}

inline ShardRule adadelta_rule() {
  constexpr double kRho = 0.8, kEpsilon = 0.01;
  return shard_rule(
      "adadelta", rules::Adadelta{.rho = kRho, .epsilon = kEpsilon}, {0, 0},
      [=](double& p, double g, double decay, int, ShardRule::ElementStates& s) {
        g += decay * p;
        s[0] = kRho * s[0] + (1 - kRho) * g * g;
        const double delta = std::sqrt((s[1] + kEpsilon) / (s[0] + kEpsilon)) * g;
        s[1] = kRho * s[1] + (1 - kRho) * delta * delta;
        p -= kShardRate * delta;
      },
      narrowed(true, [=](float p, float g, double, int, Floats& s) {
        const float rate = kShardRate, kept = kRho, fresh = 1 - kRho;
        const float epsilon = kEpsilon;
        s[0] = std::fma(kept, s[0], (fresh * g) * g);
        const float delta = std::sqrt(s[1] + epsilon) / std::sqrt(s[0] + epsilon) * g;
        s[1] = std::fma(kept, s[1], (fresh * delta) * delta);
        return std::fma(-rate, delta, p);
      }));
}

inline ShardRule sgd_rule(std::string name, double momentum, double dampening, bool nesterov) {
  return shard_rule(
      std::move(name),
      rules::Sgd{.momentum = momentum, .dampening = dampening, .nesterov = nesterov},
      momentum > 0 ? std::vector<double>{-1} : std::vector<double>{},
      [=](double& p, double g, double decay, int t, ShardRule::ElementStates& s) {
        g += decay * p;
        if (momentum > 0) {
          s[0] = t == 1 ? g : momentum * s[0] + (1 - dampening) * g;
          g = nesterov ? g + momentum * s[0] : s[0];
        }
        p -= kShardRate * g;
      },
      narrowed(true, [=](float p, float g, double, int t, Floats& s) {
        const float rate = kShardRate, kept = momentum, fresh = 1 - dampening;
        if (momentum > 0) {
          s[0] = t == 1 ? g : std::fma(kept, s[0], fresh * g);
          g = nesterov ? std::fma(kept, s[0], g) : s[0];
        }
        return std::fma(-rate, g, p);
      }));
}

inline std::vector<ShardRule> shard_rules() {
  return {adam_rule<true>(),
          adam_rule<false>(),
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
    first.states.push_back(rounded(random_values(c.n, seed, low, 1), c.state_dtype()));
  }
  return first;
}

inline Values gradient_of_step(const ShardCase& c, size_t step) {
  return rounded(random_values(c.n, 5 + step, -4, 4), c.grad);
}

// By value, by parameter; see ShardUpdate::draws.
inline std::vector<std::vector<uint64_t>> draws_of(const ShardCase& c, const ShardRule& rule) {
  std::vector<std::vector<uint64_t>> draws(1 + rule.states.size());
  for (size_t value = 0; value < draws.size(); ++value) {
    const DType dtype = value == 0 ? c.master : c.state_dtype();
    if (!c.by_chance || dtype != DType::kBF16) continue;
    for (uint64_t p = 0; p < kFirstCounts.size(); ++p) draws[value].push_back(100 * value + p);
  }
  return draws;
}

// One step of values that keep 16 bits, by a kernel for each of its parts: widened, stepped,
// rounded segment by segment, and the copy made from what is kept.
inline void step_in_parts(Backend& backend, const ShardRule& rule, const ShardUpdate& update,
                          std::vector<Tensor>& states) {
  Stream& stream = backend.compute_stream();
  std::vector<Tensor> kept = {update.master}, wide;
  kept.insert(kept.end(), states.begin(), states.end());
  for (const Tensor& values : kept) {
    wide.push_back(
        Tensor::empty(backend, values.shape(), accumulation_dtype(update.master.dtype())));
    backend.run(stream, CastArgs{values, wide.back()});
  }
  std::vector<Tensor> wide_states(wide.begin() + 1, wide.end());
  rule.kernel(backend,
              {.master = wide[0],
               .grad = update.grad,
               .segments = update.segments,
               .step_counts = update.step_counts,
               .present = update.present,
               .learning_rate = update.learning_rate,
               .gradient_scale = update.gradient_scale,
               .skip = update.skip,
               .weight_decay = update.weight_decay},
              wide_states);
  const std::vector<int32_t> present = update.present.to_host<int32_t>();
  for (const ShardSegment& s : update.segments) {
    const auto parameter = static_cast<size_t>(s.parameter);
    if (present[parameter] == 0) continue;
    const auto of_segment = [&](const Tensor& x) { return x.slice(s.begin, {s.end - s.begin}); };
    for (size_t value = 0; value < kept.size(); ++value) {
      Tensor out = of_segment(kept[value]);
      const Tensor x = of_segment(wide[value]);
      const std::vector<uint64_t>& draws = (*update.draws)[value];
      if (draws.empty()) {
        backend.run(stream, CastArgs{x, out});
        continue;
      }
      const std::vector<ParameterRun> runs = {{0, s.end - s.begin, draws[parameter], s.first}};
      backend.run(
          stream,
          StochasticRoundArgs{
              .x = x, .out = out, .runs = runs, .seed = update.seed, .update = update.update});
    }
    if (!update.copy) continue;
    Tensor copy = of_segment(*update.copy);
    backend.run(stream, CastArgs{of_segment(update.master), copy});
  }
}

// Masters and states of 16 bits; segments begin at elements that are a multiple of eight, and not.
inline std::vector<ShardCase> narrow_cases(int64_t n) {
  const std::vector<ShardSegment> segments = {{n / 2, n / 2 + 1, true, 2, 8},
                                              {0, n / 3, true, 0, 64},
                                              {n / 3, n / 2, true, 1, (int64_t{1} << 35) + 5},
                                              {n / 2 + 10, n - 2, false, 2, 9}};
  constexpr DType kBF16 = DType::kBF16, kF16 = DType::kF16, kF32 = DType::kF32;
  std::vector<ShardCase> cases = {{kBF16, kF32, kBF16, n, 0, segments, 0, kBF16, true},
                                  {kF32, kBF16, kBF16, n, 0, segments, 0, kBF16, true},
                                  {kF16, kF32, std::nullopt, n, 1, segments, 0, kBF16, true},
                                  {kBF16, kF32, kF32, n, 0, segments, 0, kF32, false}};
  ShardCase many = {kBF16, kF32, std::nullopt, 1000, 0, {}, 0, kBF16, true};
  for (int64_t i = 0; i < 100; ++i) {  // more than travel with the launch
    many.segments.push_back({10 * i, 10 * i + 9, true, static_cast<int32_t>(i % 3), 16 * i});
  }
  cases.push_back(many);
  return cases;
}

inline ShardValues three_steps(Backend& backend, const ShardCase& c, const ShardRule& rule,
                               bool in_parts = false) {
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
  for (const Values& state : first.states) states.push_back(tensor(c.state_dtype(), state));
  Tensor counts =
      Tensor::from_host<int32_t>(backend, {3}, {kFirstCounts.begin(), kFirstCounts.end()});
  const Tensor skip = Tensor::from_host<int32_t>(backend, {}, {c.skip});
  const Tensor rate = make_tensor(backend, {}, DType::kF64, {kShardRate});
  const Tensor scale = make_tensor(backend, {}, c.wide(), {kShardScale});
  const auto draws = draws_of(c, rule);
  for (size_t step = 0; step < std::size(kShardPresent); ++step) {
    const auto& flags = kShardPresent[step];
    const Tensor present = Tensor::from_host<int32_t>(backend, {3}, {flags.begin(), flags.end()});
    const Tensor grad = tensor(c.grad, gradient_of_step(c, step));
    backend.run(backend.compute_stream(), AdvanceStepsArgs{counts, present, skip});
    const ShardUpdate update = {.master = master,
                                .grad = grad,
                                .copy = c.copy ? &copy : nullptr,
                                .segments = c.segments,
                                .step_counts = counts,
                                .present = present,
                                .learning_rate = rate,
                                .gradient_scale = scale,
                                .skip = skip,
                                .weight_decay = kShardDecay,
                                .draws = &draws,
                                .seed = 5,
                                .update = static_cast<uint32_t>(step)};
    in_parts ? step_in_parts(backend, rule, update, states) : rule.kernel(backend, update, states);
  }
  ShardValues out = {.master = master.to_doubles(),
                     .copy = copy.to_doubles(),
                     .counts = counts.to_doubles(),
                     .states = {}};
  for (const Tensor& state : states) out.states.push_back(state.to_doubles());
  return out;
}

inline double scaled(double gradient, DType wide) {
  if (wide == DType::kF64) return kShardScale * gradient;
  return static_cast<float>(kShardScale) * static_cast<float>(gradient);
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
        rule.formula(out.master[i], scaled(grad[i], c.wide()), segment.decay ? kShardDecay : 0,
                     static_cast<int>(out.counts[parameter]), s);
        for (size_t k = 0; k < out.states.size(); ++k) out.states[k][i] = s[k];
        if (c.copy) out.copy[i] = out.master[i];
      }
    }
  }
  return out;
}

}  // namespace fsdp::test
