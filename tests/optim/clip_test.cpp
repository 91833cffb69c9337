// Clipping: norms of every order of ranks that share a gradient, against plain sums, and what a
// non-finite gradient does. Padding: check_norms in tests/support/world_checks.h. The coefficient:
// tests/kernels/reduce_test.cpp.
#include "optim/clip.h"

#include <cmath>
#include <limits>

#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/support/flat_unit.h"
#include "tests/support/temp_folder.h"

namespace fsdp::optim {
namespace {

using Doubles = std::vector<double>;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Gaps and padding are not a number, to be seen when touched.
OptimizerShard shard_of(Backend& backend, const test::FlatUnit& unit, int index, DType dtype,
                        uint64_t seed) {
  OptimizerShard shard = unit.shard(backend, index, dtype, dtype, kNan);
  int parameter = 0;
  for (const FlatParameter& p : unit.layout().parameters()) {
    unit.write(shard, shard.gradient, parameter, test::random_values(p.numel, seed, -3, 3));
    ++parameter, ++seed;
  }
  return shard;
}

double reference_norm(const std::vector<OptimizerShard>& shards, double power) {
  double sum = 0;
  for (const OptimizerShard& shard : shards) {
    const Doubles values = shard.gradient.to_doubles();
    for (const auto& [begin, end] : shard.layout.spans(shard.index)) {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
        sum = std::isinf(power) ? std::max(sum, std::abs(values[i]))
                                : sum + std::pow(std::abs(values[i]), power);
      }
    }
  }
  return std::isinf(power) ? sum : std::pow(sum, 1 / power);
}

// Their layouts name parameters, so they live as long.
struct Units {
  test::FlatUnit gaps{{{1000}, {1975}}, 1};
  test::FlatUnit short_tail{{{100}, {3}}, 2};
  test::FlatUnit small{{{10}}, 2};

  std::vector<OptimizerShard> three_shards(Backend& backend, DType dtype) const {
    return {shard_of(backend, gaps, 0, dtype, 1),
            shard_of(backend, small, 1, dtype, 2),  // nothing but padding
            shard_of(backend, short_tail, 1, dtype, 3)};
  }
};

TEST_CASE("clip: shards measured one by one, in any order, give the bits of the norm of all") {
  cpu::CpuBackend backend;
  for (const double power : {1.0, 2.0, 3.0, kInfinity}) {
    CAPTURE(power);
    const Units units;
    const std::vector<OptimizerShard> shards = units.three_shards(backend, DType::kF32);
    Clipper whole(shards, nullptr, 0, power);
    whole.measure();
    Clipper parts(shards, nullptr, 0, power, nullptr, /*one_by_one=*/true);
    for (int again = 0; again < 2; ++again) {
      for (const size_t i : {2, 0, 1}) parts.measure_shard(i);
      parts.measure();
      CHECK(parts.norm().item() == whole.norm().item());
    }
    CHECK(parts.for_optimizer().coefficient.item() == 1);
    CHECK(parts.for_optimizer().skip.item() == 0);
  }
  const Units units;
  const std::vector<OptimizerShard> shards = units.three_shards(backend, DType::kF32);
  CHECK(test::contains(test::error_of([&] { Clipper(shards, nullptr, 1, 2, nullptr, true); }),
                       "[clip] max_norm: updates in backward come before the norm is known"));
}

TEST_CASE("clip: a norm above the limit says so, and one that is not finite says that") {
  cpu::CpuBackend backend;
  const Units units;
  const std::vector<OptimizerShard> shards = units.three_shards(backend, DType::kF64);
  Clipper clipper(shards, nullptr, 0);
  clipper.measure();
  const double norm = clipper.norm().item();
  const auto skip = [&](double limit) {
    clipper.measure(nullptr, nullptr, limit);
    return static_cast<StepSkip>(clipper.skip().item());
  };
  CHECK(skip(norm) == kNotSkipped);
  CHECK(skip(norm * (1 - 1e-12)) == kSpike);
  CHECK(skip(0) == kSpike);
  const double infinite = kInfinity;
  shards[0].gradient.slice(0, Shape{1}).write(&infinite);
  CHECK(skip(norm) == kNotFinite);
  CHECK(skip(kInfinity) == kNotFinite);
}

TEST_CASE("clip: gradients on one backend, the decision on another, the same bits") {
  cpu::CpuBackend gradients, decides;
  const Units units;
  const test::FlatUnit aligned({{1000}, {1975}}, 1, kNormBlock);
  for (const bool by_blocks : {false, true}) {
    for (const double power : {2.0, kInfinity}) {
      CAPTURE(by_blocks);
      CAPTURE(power);
      std::vector<OptimizerShard> shards = units.three_shards(gradients, DType::kF32);
      if (by_blocks) shards = {shard_of(gradients, aligned, 0, DType::kF32, 1)};
      for (OptimizerShard& shard : shards) shard.norm_by_blocks = by_blocks;
      Clipper here(shards, nullptr, 0.1, power), apart(shards, nullptr, 0.1, power, &decides);
      const float scale = 4;
      const Tensor of_gradients = Tensor::from_host<float>(gradients, {}, {scale});
      const Tensor of_decision = Tensor::from_host<float>(decides, {}, {scale});
      here.measure(&of_gradients);
      apart.measure(&of_decision);
      CHECK(apart.norm().item() == here.norm().item());
      CHECK(apart.coefficient().item() == here.coefficient().item());
      CHECK(&apart.coefficient().backend() == &decides);
      const Clipper::ForOptimizer& told = apart.for_optimizer();
      CHECK(&told.coefficient.backend() == &gradients);
      CHECK(told.coefficient.item() == here.coefficient().item());
      CHECK(&here.for_optimizer().skip.backend() == &gradients);
      const float infinite = std::numeric_limits<float>::infinity();
      shards[0].gradient.slice(0, Shape{1}).write(&infinite);
      apart.measure();
      CHECK(apart.skip().item() == 1);
      CHECK(told.skip.item() == 1);
      CHECK(test::contains(test::error_of([&] { apart.measure(&of_gradients); }),
                           "expected them on the backend that decides"));
    }
  }
}

TEST_CASE("clip: a non-finite gradient asks to skip the step, and the next one recovers") {
  cpu::CpuBackend backend;
  for (const double power : {1.0, 2.0, 3.0, kInfinity}) {
    for (const double bad : {kInfinity, -kInfinity, kNan}) {
      CAPTURE(power);
      CAPTURE(bad);
      const Units units;
      const std::vector<OptimizerShard> shards = units.three_shards(backend, DType::kF32);
      Clipper clipper(shards, nullptr, 1, power);
      const auto write = [&](double value) {
        const Tensor one = shards[2].gradient.slice(2, Shape{1});
        const auto v = static_cast<float>(value);
        one.write(&v);
      };
      write(bad);
      clipper.measure();
      CHECK(clipper.skip().item() == 1);
      CHECK_FALSE(std::isfinite(clipper.norm().item()));
      write(0.5);
      clipper.measure();
      CHECK(clipper.skip().item() == 0);
      CHECK(std::isfinite(clipper.norm().item()));
    }
  }
}

TEST_CASE("clip: powers are summed in f32 (f64 for f64): what overflows there skips the step") {
  cpu::CpuBackend backend;
  for (const DType dtype : {DType::kF64, DType::kF32}) {
    const test::FlatUnit unit({{2}}, 1);
    OptimizerShard shard = shard_of(backend, unit, 0, dtype, 1);
    unit.write(shard, shard.gradient, 0, {3e30, 4e30});
    Clipper clipper({shard}, nullptr, 1);
    clipper.measure();
    CHECK(clipper.skip().item() == (dtype == DType::kF32 ? 1 : 0));
    if (dtype == DType::kF64) CHECK(clipper.norm().item() == doctest::Approx(5e30));
  }
}

TEST_CASE("clip: ranks that hold parts of one gradient agree on its norm and on skipping") {
  const test::FlatUnit unit({{83}}, 1);
  for (const double power : {1.0, 2.0, 3.0, kInfinity}) {
    for (const bool bad : {false, true}) {
      CAPTURE(power);
      CAPTURE(bad);
      cpu::CpuBackend reference_backend;
      std::vector<OptimizerShard> all;
      for (uint64_t rank = 0; rank < 3; ++rank) {
        all.push_back(shard_of(reference_backend, unit, 0, DType::kF64, 5 + rank));
      }
      const double expected = reference_norm(all, power);
      Doubles norms(3), skips(3);
      comm::run_local_ranks(3, [&](comm::Communicator& world) {
        cpu::CpuBackend backend;
        const auto rank = static_cast<size_t>(world.rank());
        const OptimizerShard shard = shard_of(backend, unit, 0, DType::kF64, 5 + rank);
        if (bad && rank == 1) shard.gradient.slice(8, Shape{1}).write(&kInfinity);
        Clipper clipper({shard}, &world, 1, power);
        clipper.measure();
        norms[rank] = clipper.norm().item();
        skips[rank] = clipper.skip().item();
      });
      CHECK(skips == Doubles(3, bad ? 1.0 : 0.0));
      if (bad) continue;
      CHECK(norms[0] == doctest::Approx(expected).epsilon(1e-13));
      CHECK(norms == Doubles(3, norms[0]));
    }
  }
}

TEST_CASE("clip: wrong arguments are named") {
  cpu::CpuBackend backend;
  CHECK(test::error_of([] { Clipper({}, nullptr, 1); }) == "[clip] shards: expected at least one");
  const Units units;
  const std::vector<OptimizerShard> shards = units.three_shards(backend, DType::kF32);
  CHECK(test::error_of([&] { Clipper(shards, nullptr, 1, 0.5); }) ==
        "[clip] norm type: expected 1 or more, or infinity, got 0.5");
}

}  // namespace
}  // namespace fsdp::optim
