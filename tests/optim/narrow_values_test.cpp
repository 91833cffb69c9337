// Masters and moments of 16 bits: the step is that of f32, then each value is rounded by the
// definition, whatever the shards; by chance it is right on average; what stands still
// stays. Beside the formula in double.
// Requirements: S2.6.
#include <bit>
#include <cmath>

#include <doctest/doctest.h>

#include "core/rng.h"
#include "kernels/cpu/cpu_backend.h"
#include "optim/optimizer.h"
#include "optim/optimizer_kind.h"
#include "tests/support/flat_unit.h"
#include "tests/support/temp_folder.h"

namespace fsdp::optim {
namespace {

using Doubles = std::vector<double>;
using test::FlatUnit;

constexpr DType kF32 = DType::kF32, kBF16 = DType::kBF16, kF16 = DType::kF16;
constexpr uint64_t kSeed = 11;
constexpr double kRate = 0.01;

const OptimizerOptions kKinds[] = {
    {.kind = OptimizerKind::kAdamW},
    {.kind = OptimizerKind::kAdam, .weight_decay = 0.1},
    {.kind = OptimizerKind::kAdamax, .weight_decay = 0.1},
    {.kind = OptimizerKind::kAdadelta, .weight_decay = 0.1, .epsilon = 0.1},
    {.kind = OptimizerKind::kSgd, .weight_decay = 0.01, .momentum = 0.9},
    {.kind = OptimizerKind::kSgd}};

OptimizerOptions narrow(OptimizerOptions options, bool by_chance = true) {
  options.state_dtype = kBF16;
  options.rounds_masters_by_chance = by_chance;
  options.rounding_seed = kSeed;
  return options;
}

// Parameters in so many shards, on one backend.
struct Run {
  std::vector<FlatUnit::Member> members;
  cpu::CpuBackend backend;
  FlatUnit unit;
  std::vector<OptimizerShard> shards;
  Tensor coefficient = test::make_tensor(backend, Shape{}, kF32, {1});
  Tensor skip = Tensor::zeros(backend, Shape{}, DType::kI32);
  std::unique_ptr<Optimizer> optimizer;

  Run(std::vector<FlatUnit::Member> parameters, int count, DType master,
      const OptimizerOptions& options)
      : members(std::move(parameters)), unit(members, count) {
    for (int i = 0; i < count; ++i) shards.push_back(unit.shard(backend, i, master, kF32));
    for (size_t p = 0; p < members.size(); ++p) {
      put(&OptimizerShard::master, p, rounded_values(p, 1 + p));
    }
    optimizer = make_optimizer(shards, options);
  }
  // Values that bf16 and f16 hold, so that all masters begin alike.
  Doubles rounded_values(size_t parameter, uint64_t seed) const {
    return test::rounded(test::rounded(test::random_values(members[parameter].numel, seed), kBF16),
                         kF16);
  }
  void put(Tensor OptimizerShard::*field, size_t parameter, const Doubles& values) {
    for (const OptimizerShard& shard : shards) {
      unit.write(shard, shard.*field, static_cast<int>(parameter), values);
    }
  }
  void step(uint32_t number) {
    for (size_t p = 0; p < members.size(); ++p) {
      put(&OptimizerShard::gradient, p, test::random_values(members[p].numel, 100 * number + p));
    }
    optimizer->step(kRate, coefficient, skip, number);
  }
  Doubles master(size_t parameter) const {
    Doubles out(static_cast<size_t>(members[parameter].numel), NAN);
    for (const OptimizerShard& shard : shards) {
      unit.read(shard, shard.master, static_cast<int>(parameter), out);
    }
    return out;
  }
  Doubles state(std::string_view name, size_t parameter) {
    Doubles out(static_cast<size_t>(members[parameter].numel), NAN);
    optimizer->visit_state([&](const StatePart& part) {
      if (part.name != name || &part.parameter != &unit.parameter(parameter)) return;
      const Doubles values = part.values.to_doubles();
      std::copy(values.begin(), values.end(), out.begin() + part.first);
    });
    return out;
  }
};

// As core/rng.h says, of values that are f32.
Doubles by_definition(const Doubles& exact, const std::string& name, uint32_t number) {
  const RoundingStream stream(kSeed, number);
  Doubles out;
  for (size_t i = 0; i < exact.size(); ++i) {
    BFloat16 rounded;
    rounded.bits = rounded_by_chance(
        std::bit_cast<uint32_t>(static_cast<float>(exact[i])),
        RoundingStream::draw(stream.words(hash_name(name), i / 8), static_cast<uint32_t>(i % 8)));
    out.push_back(static_cast<double>(static_cast<float>(rounded)));
  }
  return out;
}

const std::vector<FlatUnit::Member> kThree = {{37, true}, {5, false}, {200, true}};

TEST_CASE("narrow values: the first step is that of f32, each value rounded by the definition") {
  for (const OptimizerOptions& options : kKinds) {
    CAPTURE(name_of(options.kind));
    Run wide(kThree, 1, kF32, options), run(kThree, 1, kBF16, narrow(options));
    Run nearest(kThree, 1, kBF16, narrow(options, false)), half(kThree, 1, kF16, narrow(options));
    for (Run* each : {&wide, &run, &nearest, &half}) each->step(1);
    for (size_t p = 0; p < kThree.size(); ++p) {
      const std::string name = run.unit.parameter(p).name();
      CHECK(run.master(p) == by_definition(wide.master(p), name, 1));
      CHECK(nearest.master(p) == test::rounded(wide.master(p), kBF16));
      CHECK(half.master(p) == test::rounded(wide.master(p), kF16));
      for (const std::string_view state : state_names(options)) {
        const Doubles expected =
            by_definition(wide.state(state, p), fmt::format("{}/{}", name, state), 1);
        CHECK(run.state(state, p) == expected);
        CHECK(half.state(state, p) == expected);
      }
    }
  }
}

TEST_CASE("narrow values: three steps in any number of shards have the same bits, and not twice") {
  for (const OptimizerOptions& options : kKinds) {
    CAPTURE(name_of(options.kind));
    Run expected(kThree, 1, kBF16, narrow(options));
    for (uint32_t number = 1; number <= 3; ++number) expected.step(number);
    for (const int shards : {2, 3, 4}) {
      Run run(kThree, shards, kBF16, narrow(options));
      for (uint32_t number = 1; number <= 3; ++number) run.step(number);
      for (size_t p = 0; p < kThree.size(); ++p) {
        CHECK(run.master(p) == expected.master(p));
        for (const std::string_view state : state_names(options)) {
          CHECK(run.state(state, p) == expected.state(state, p));
        }
      }
    }
  }
  // Another step draws otherwise.
  Run one(kThree, 1, kBF16, narrow({})), other(kThree, 1, kBF16, narrow({}));
  for (Run* run : {&one, &other}) {
    for (size_t p = 0; p < kThree.size(); ++p) {
      run->put(&OptimizerShard::gradient, p, run->rounded_values(p, 9));
    }
  }
  one.optimizer->step(kRate, one.coefficient, one.skip, 1);
  other.optimizer->step(kRate, other.coefficient, other.skip, 2);
  CHECK(one.master(2) != other.master(2));
}

TEST_CASE("narrow values: a large shard, with a copy of what it keeps") {
  const std::vector<FlatUnit::Member> large = {{1000, true}, {(int64_t{1} << 20) + 5000, false}};
  Run wide(large, 1, kF32, {}), run(large, 1, kBF16, narrow({}));
  OptimizerShard copied = run.shards[0];
  copied.copy = Tensor::zeros(run.backend, copied.master.shape(), kF32);
  run.optimizer = make_optimizer({copied}, narrow({}));
  for (Run* each : {&wide, &run}) each->step(1);
  for (size_t p = 0; p < large.size(); ++p) {
    CHECK((run.master(p) == by_definition(wide.master(p), run.unit.parameter(p).name(), 1)));
  }
  CHECK((copied.copy.to_doubles() == copied.master.to_doubles()));
}

// The mean of n values, each of which is one of two neighbours that are `apart` apart, lies within
// five deviations of what they stand for: a deviation is at most apart / 2 / sqrt(n).
void check_mean(const Doubles& values, double exact, double apart) {
  double sum = 0;
  for (const double value : values) {
    CHECK(std::abs(value - exact) < apart);
    sum += value;
  }
  const auto n = static_cast<double>(values.size());
  CHECK(std::abs(sum / n - exact) < 5 * apart / 2 / std::sqrt(n));
}

// A step of AdamW in double: t is 1, so that m / (1 - b1) is g, and sqrt(v / (1 - b2)) is |g|.
TEST_CASE("narrow values: right on average, beside the formula in double") {
  constexpr int64_t kCount = 8192;
  constexpr double kGradient = 0.37, kStart = 1, kBeta1 = 0.9, kBeta2 = 0.999;
  const OptimizerOptions options =
      narrow({.weight_decay = 0.1, .beta1 = kBeta1, .beta2 = kBeta2, .epsilon = 1e-8});
  Run run({{kCount, true}}, 1, kBF16, options);
  run.put(&OptimizerShard::master, 0, Doubles(kCount, kStart));
  run.put(&OptimizerShard::gradient, 0, Doubles(kCount, kGradient));
  run.optimizer->step(1e-3, run.coefficient, run.skip, 1);
  // Of bf16's digits there are eight: neighbours below 1 are 2^-8 apart, the update is less.
  check_mean(run.master(0), kStart * (1 - 1e-3 * 0.1) - 1e-3, 0x1p-8);
  const double m = (1 - kBeta1) * kGradient, v = (1 - kBeta2) * kGradient * kGradient;
  check_mean(run.state("exp_avg", 0), m, std::exp2(std::floor(std::log2(m)) - 7));
  check_mean(run.state("exp_avg_sq", 0), v, std::exp2(std::floor(std::log2(v)) - 7));
  // To nearest the update is lost.
  Run nearest({{8, true}}, 1, kBF16, narrow(options, false));
  nearest.put(&OptimizerShard::master, 0, Doubles(8, kStart));
  nearest.put(&OptimizerShard::gradient, 0, Doubles(8, kGradient));
  nearest.optimizer->step(1e-3, nearest.coefficient, nearest.skip, 1);
  CHECK(nearest.master(0) == Doubles(8, kStart));
}

// v of a gradient of 0 shrinks by 1 - b2 a step, which is less than bf16's last digit.
TEST_CASE("narrow values: a moment that fades fades on average") {
  constexpr int64_t kCount = 4096;
  constexpr uint32_t kSteps = 200;
  Run run({{kCount, true}}, 1, kF32, narrow({.beta1 = 0.9, .beta2 = 0.999}));
  run.put(&OptimizerShard::gradient, 0, Doubles(kCount, 0.5));
  run.optimizer->step(0, run.coefficient, run.skip, 1);
  run.put(&OptimizerShard::gradient, 0, Doubles(kCount, 0));
  for (uint32_t number = 2; number <= kSteps; ++number) {
    run.optimizer->step(0, run.coefficient, run.skip, number);
  }
  double sum = 0;
  for (const double v : run.state("exp_avg_sq", 0)) sum += v / kCount;
  const double expected = 0.001 * 0.25 * std::pow(0.999, kSteps - 1);
  CHECK(sum == doctest::Approx(expected).epsilon(0.005));
}

TEST_CASE("narrow values: a skipped step and an absent parameter change no bit") {
  for (const OptimizerOptions& options : kKinds) {
    CAPTURE(name_of(options.kind));
    Run run(kThree, 1, kBF16, narrow(options));
    run.step(1);
    const std::vector<Doubles> before = {run.master(0), run.master(1), run.master(2)};
    const auto states = [&](size_t p) {
      std::vector<Doubles> all;
      for (const std::string_view state : state_names(options)) all.push_back(run.state(state, p));
      return all;
    };
    const auto second = states(1);
    const int32_t yes = 1, no = 0;
    run.skip.write(&yes);
    run.step(2);
    for (size_t p = 0; p < 3; ++p) CHECK(run.master(p) == before[p]);
    run.skip.write(&no);
    run.shards[0].present.write(std::vector<int32_t>{1, 0, 1}.data());
    run.step(3);
    CHECK(run.master(1) == before[1]);
    CHECK(states(1) == second);
    CHECK(run.master(0) != before[0]);
  }
}

// Values are widened where they are stepped, in registers or in a cache: no memory for it.
TEST_CASE("narrow values: memory of a parameter") {
  constexpr int64_t kNumel = 4096;
  const auto bytes = [&](DType master, const OptimizerOptions& options) {
    cpu::CpuBackend backend;
    const FlatUnit unit({{kNumel}}, 1);
    const OptimizerShard shard = unit.shard(backend, 0, master, kF32);
    const auto optimizer = make_optimizer({shard}, options);
    return backend.ledger().usage().current[static_cast<size_t>(MemoryCategory::kOptimizerState)] -
           2 * 512;  // t, learning rate
  };
  CHECK(bytes(kF32, {}) == 2 * 4 * kNumel);
  CHECK(bytes(kF32, narrow({})) == 2 * 2 * kNumel);
  CHECK(bytes(kBF16, narrow({})) == 2 * 2 * kNumel);
  CHECK(bytes(kBF16, {}) == 2 * 4 * kNumel);
}

TEST_CASE("narrow values: what state cannot be kept in is refused") {
  cpu::CpuBackend backend;
  const FlatUnit unit({{8}}, 1);
  const auto refusal = [&](DType master, DType state) {
    return test::error_of([&] {
      make_optimizer({unit.shard(backend, 0, master, accumulation_dtype(master))},
                     {.state_dtype = state});
    });
  };
  CHECK(refusal(kBF16, kF16) == "[optimizer] state_dtype: expected f32 or bf16, got f16");
  CHECK(refusal(DType::kF64, kBF16) == "[optimizer] state_dtype: expected f64, got bf16");
}

}  // namespace
}  // namespace fsdp::optim
