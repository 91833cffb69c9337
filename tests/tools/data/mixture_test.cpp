// Which source gives a sample: windows of samples against the shares of the weights, the numbers of
// each source's draws, what the seed decides.
// Requirements: S3.7.
#include "tools/data/mixture.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include <doctest/doctest.h>

#include "core/error.h"
#include "tests/support/temp_folder.h"

namespace fsdp::data {
namespace {

std::vector<WeightedSource> sources_of(const std::vector<double>& weights) {
  std::vector<WeightedSource> out;
  for (const double weight : weights) out.push_back({.items = 10, .weight = weight});
  return out;
}

const std::vector<std::vector<double>> kWeights = {
    {1}, {1, 1}, {2, 1}, {1, 2}, {0.7, 0.2, 0.1}, {1e6, 1e-6, 3, 5}, {1, 1, 1, 1, 1}, {0.001, 1}};

TEST_CASE("mixture: a source's draws are numbered from 0 without a gap") {
  for (const std::vector<double>& weights : kWeights) {
    const Mixture mixture(sources_of(weights), 42);
    std::vector<int64_t> next(weights.size(), 0);
    for (int64_t n = 0; n < 5000; ++n) {
      const Mixture::Draw draw = mixture.draw(n);
      REQUIRE(draw.source < weights.size());
      REQUIRE(draw.number == next[draw.source]++);
    }
  }
}

TEST_CASE("mixture: any samples in a row have the shares of the weights") {
  for (const std::vector<double>& weights : kWeights) {
    const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
    for (const uint64_t seed : {0, 1, 42}) {
      const Mixture mixture(sources_of(weights), seed);
      for (const int64_t first : {int64_t{0}, int64_t{17}, int64_t{1} << 40}) {
        std::vector<int64_t> counts(weights.size(), 0);
        for (int64_t n = 1; n <= 3000; ++n) {
          ++counts[mixture.draw(first + n - 1).source];
          for (size_t s = 0; s < weights.size(); ++s) {
            const double share = static_cast<double>(n) * weights[s] / all;
            REQUIRE(std::abs(static_cast<double>(counts[s]) - share) <
                    static_cast<double>(s + 1) + 1e-3);
          }
        }
      }
    }
  }
}

TEST_CASE("mixture: the seed moves the sources, and each may be the first") {
  std::map<size_t, int> first;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    ++first[Mixture(sources_of({2, 1, 1}), seed).draw(0).source];
  }
  CHECK(first[0] == doctest::Approx(1500).epsilon(0.1));
  CHECK(first[1] == doctest::Approx(750).epsilon(0.15));
  CHECK(first[2] == doctest::Approx(750).epsilon(0.15));
}

TEST_CASE("mixture: weights and sources that are none") {
  const auto refusal = [](const std::vector<WeightedSource>& sources) {
    return test::error_of([&] { Mixture mixture(sources, 0); });
  };
  CHECK(refusal({{1, 1}, {1, 0}}) ==
        "[mixture] source 1: weight: expected a number from 1e-06 to 1000000, got 0");
  CHECK(test::contains(refusal({{1, -1}}), "got -1"));
  CHECK(test::contains(refusal({{1, NAN}}), "got nan"));
  CHECK(refusal({{0, 1}}) == "[mixture] source 0: expected at least one item");
  CHECK(refusal({}) == "[mixture] expected at least one source");
}

}  // namespace
}  // namespace fsdp::data
