// The choice of a token: greedy, top-k, temperature, and that it depends on (seed, position) only.
// Whole generations: tests/e2e/generate.sh.
#include "tools/runtime/generation.h"

#include <cmath>
#include <limits>
#include <set>

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

const std::vector<double> kLogits = {0.5, 2.0, -1.0, 2.0, 1.0};

TEST_CASE("greedy takes the likeliest, the first of equals") {
  CHECK(choose_token(kLogits, {.temperature = 0}, 0) == 1);
  CHECK(choose_token({-3, -2, -5}, {.temperature = 0}, 9) == 1);
}

TEST_CASE("sampling repeats for one seed and position and differs between them") {
  const GenerationOptions options = {.temperature = 1, .seed = 7};
  std::set<int32_t> seen;
  for (uint64_t position = 0; position < 100; ++position) {
    const int32_t token = choose_token(kLogits, options, position);
    CHECK(token == choose_token(kLogits, options, position));
    seen.insert(token);
  }
  CHECK(seen.size() == kLogits.size());
}

TEST_CASE("frequencies follow softmax(logits / temperature)") {
  for (const double temperature : {0.5, 1.0, 3.0}) {
    constexpr int kDraws = 20000;
    std::vector<int> counts(kLogits.size());
    for (int i = 0; i < kDraws; ++i) {
      const GenerationOptions options = {.temperature = temperature, .seed = 3};
      ++counts[static_cast<size_t>(choose_token(kLogits, options, static_cast<uint64_t>(i)))];
    }
    double total = 0;
    for (const double logit : kLogits) total += std::exp(logit / temperature);
    for (size_t token = 0; token < kLogits.size(); ++token) {
      const double p = std::exp(kLogits[token] / temperature) / total;
      // five standard deviations of a binomial
      CHECK(std::abs(counts[token] - kDraws * p) < 5 * std::sqrt(kDraws * p * (1 - p)));
    }
  }
}

TEST_CASE("top-k draws only from the k likeliest; ties go to the smaller id") {
  std::set<int32_t> of_two, of_three, of_one;
  for (uint64_t position = 0; position < 300; ++position) {
    of_one.insert(choose_token(kLogits, {.temperature = 5, .top_k = 1}, position));
    of_two.insert(choose_token(kLogits, {.temperature = 5, .top_k = 2}, position));
    of_three.insert(choose_token(kLogits, {.temperature = 5, .top_k = 3}, position));
  }
  CHECK(of_one == std::set<int32_t>{1});
  CHECK(of_two == std::set<int32_t>{1, 3});
  CHECK(of_three == std::set<int32_t>{1, 3, 4});
}

TEST_CASE("a tiny temperature does not overflow, and nan is an error") {
  CHECK(choose_token({1000, 2000, 1500}, {.temperature = 1e-6}, 0) == 1);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const std::vector<double>& logits :
       {std::vector<double>{0, nan}, std::vector<double>{nan, 0}}) {
    CHECK(test::contains(test::error_of([&] { choose_token(logits, {}, 5); }),
                         "position 5: not finite"));
  }
}

}  // namespace
}  // namespace fsdp::tools
