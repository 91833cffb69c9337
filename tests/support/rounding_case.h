// What the tests of stochastic rounding share, on every backend: runs of parameters in a shard.
#pragma once

#include "core/rng.h"
#include "core/shard_args.h"
#include "tests/support/kernel_support.h"

namespace fsdp::test {

// The first 16-bit elements of `out` hold this where nothing was written.
constexpr double kUntouched = 7;

struct RoundingCase {
  int64_t n = 0;
  std::vector<ParameterRun> runs = {};
  int64_t offset = 0;  // elements by which x and out miss their alignment
  uint64_t seed = 5;
  uint32_t update = 3;
};

// Of every length around a Philox block, a vector and a thread's share; out of order, with gaps,
// and begun inside a block.
inline std::vector<RoundingCase> rounding_cases() {
  const uint64_t v = hash_name("v"), w = hash_name("w");
  std::vector<RoundingCase> cases = {
      {0, {}},
      {5, {}},
      {1, {{0, 1, v, 0}}},
      {40, {{0, 40, v, 0}}},
      {40, {{0, 40, v, 0}}, 1},
      {70, {{33, 33, v, 9}, {40, 69, v, 3}, {1, 30, w, 64}}},
      {5000, {{8, 2504, v, 8}, {2560, 4999, w, (int64_t{1} << 35) + 5}}},
      {70000, {{64, 69990, v, 128}}},
      {2050, {{0, 2048, v, 5}}},  // a GPU's tile, but for where it begins
      {5000, {{8, 2504, v, 8}, {2560, 4999, w, 5}}, 3}};
  RoundingCase many = {1000, {}};  // more than travel with the launch
  for (int64_t i = 0; i < 100; ++i) {
    many.runs.push_back({10 * i, 10 * i + 9, w + static_cast<uint64_t>(i), 16 * i});
  }
  cases.push_back(many);
  return cases;
}

inline Values rounding_values(int64_t n) {
  Values values = random_values(n, 1, -2, 2);
  if (n > 20) values[17] = INFINITY, values[18] = -0.0, values[19] = 1e-42, values[20] = 0.5;
  return rounded(values, DType::kF32);
}

inline Values round_on(Backend& backend, const RoundingCase& c) {
  const auto shifted = [&](DType dtype, Values values) {
    values.insert(values.begin(), static_cast<size_t>(c.offset), 0.0);
    const auto size = static_cast<int64_t>(values.size());
    return make_tensor(backend, {size}, dtype, values).slice(c.offset, {c.n});
  };
  const Tensor x = shifted(DType::kF32, rounding_values(c.n));
  Tensor out = shifted(DType::kBF16, Values(static_cast<size_t>(c.n), kUntouched));
  backend.run(
      backend.compute_stream(),
      StochasticRoundArgs{.x = x, .out = out, .runs = c.runs, .seed = c.seed, .update = c.update});
  return out.to_doubles();
}

}  // namespace fsdp::test
