// The choice of a token: greedy, temperature, top-k and top-p against probabilities from their
// definitions, and that a draw depends on seed, sample and position only.
#include "models/sampling.h"

#include <cmath>
#include <limits>
#include <set>

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp::models {
namespace {

using Doubles = std::vector<double>;
const Doubles kLogits = {0.5, 2.0, -1.0, 2.0, 1.0};

void check_probabilities(const SamplingOptions& options, const Doubles& weights,
                         const Doubles& logits = kLogits) {
  const Doubles got = sampling_probabilities(logits, options);
  double total = 0;
  for (const double weight : weights) total += weight;
  REQUIRE(got.size() == weights.size());
  for (size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    CHECK(got[i] == doctest::Approx(weights[i] / total).epsilon(1e-14));
  }
}

TEST_CASE("greedy takes the likeliest, the first of equals") {
  CHECK(choose_token(kLogits, {}, {}) == 1);
  CHECK(choose_token({-3, -2, -5}, {}, {.position = 9}) == 1);
}

TEST_CASE("temperature divides the logits") {
  const auto e = [](double x) { return std::exp(x); };
  check_probabilities({.temperature = 1}, {e(0.5), e(2), e(-1), e(2), e(1)});
  check_probabilities({.temperature = 0.5}, {e(1), e(4), e(-2), e(4), e(2)});
  check_probabilities({.temperature = 1e-6}, {0, 1, 0}, {1000, 2000, 1500});
}

TEST_CASE("top-k keeps the k likeliest and those as likely as the k-th") {
  const double a = std::exp(2.0), b = std::exp(1.0), c = std::exp(0.5);
  check_probabilities({.temperature = 1, .top_k = 1}, {0, a, 0, a, 0});
  check_probabilities({.temperature = 1, .top_k = 2}, {0, a, 0, a, 0});
  check_probabilities({.temperature = 1, .top_k = 3}, {0, a, 0, a, b});
  check_probabilities({.temperature = 1, .top_k = 4}, {c, a, 0, a, b});
  check_probabilities({.temperature = 1, .top_k = 99}, {c, a, std::exp(-1.0), a, b});
}

TEST_CASE("top-p keeps a token while those before it have less than p") {
  // Probabilities 0.5, 0.25, 0.125, 0.125.
  const Doubles logits = {std::log(0.25), std::log(0.5), std::log(0.125), std::log(0.125)};
  const auto check = [&](double p, const Doubles& weights) {
    CAPTURE(p);
    check_probabilities({.temperature = 1, .top_p = p}, weights, logits);
  };
  check(1e-9, {0, 0.5, 0, 0});
  check(0.49, {0, 0.5, 0, 0});
  check(0.51, {0.25, 0.5, 0, 0});
  check(0.74, {0.25, 0.5, 0, 0});
  check(0.76, {0.25, 0.5, 0.125, 0});  // of equals the smaller id
  check(0.88, {0.25, 0.5, 0.125, 0.125});
  check(1, {0.25, 0.5, 0.125, 0.125});
}

TEST_CASE("order: temperature, top-k, then top-p of what top-k left") {
  const Doubles logits = {std::log(0.5), std::log(0.2), std::log(0.2), std::log(0.1)};
  // Of the first three 5/9, 2/9, 2/9: 0.6 needs two of them. Of all four it would, too, but not
  // 0.56.
  check_probabilities({.temperature = 1, .top_k = 3, .top_p = 0.55}, {1, 0, 0, 0}, logits);
  check_probabilities({.temperature = 1, .top_p = 0.55}, {0.5, 0.2, 0, 0}, logits);
  // Squared: 25/34, 4/34, 4/34, 1/34.
  check_probabilities({.temperature = 0.5, .top_p = 0.73}, {1, 0, 0, 0}, logits);
  check_probabilities({.temperature = 0.5, .top_p = 0.74}, {25, 4, 0, 0}, logits);
}

TEST_CASE("a draw repeats for one seed, sample and position, and differs between them") {
  std::set<int32_t> by_position, by_sample, by_seed;
  for (uint64_t i = 0; i < 100; ++i) {
    const auto draw = [&](uint64_t seed, uint64_t sample, uint64_t position) {
      const SamplingOptions options = {.temperature = 3, .seed = seed};
      const int32_t token = choose_token(kLogits, options, {sample, position});
      CHECK(token == choose_token(kLogits, options, {sample, position}));
      return token;
    };
    by_position.insert(draw(7, 3, i));
    by_sample.insert(draw(7, i, 3));
    by_seed.insert(draw(i, 3, 3));
  }
  for (const std::set<int32_t>& seen : {by_position, by_sample, by_seed}) {
    CHECK(seen.size() == kLogits.size());
  }
}

TEST_CASE("frequencies of draws follow the probabilities") {
  for (const SamplingOptions& options :
       {SamplingOptions{.temperature = 0.5, .seed = 3},
        SamplingOptions{.temperature = 3, .seed = 3},
        SamplingOptions{.temperature = 1, .top_k = 4, .top_p = 0.9, .seed = 4}}) {
    constexpr int kDraws = 20000;
    std::vector<int> counts(kLogits.size());
    for (uint64_t i = 0; i < kDraws; ++i) {
      ++counts[static_cast<size_t>(choose_token(kLogits, options, {i % 7, i}))];
    }
    const Doubles probabilities = sampling_probabilities(kLogits, options);
    for (size_t token = 0; token < kLogits.size(); ++token) {
      const double p = probabilities[token];
      // five standard deviations of a binomial
      CHECK(std::abs(counts[token] - kDraws * p) <= 5 * std::sqrt(kDraws * p * (1 - p)));
    }
  }
}

TEST_CASE("logits that are not finite, and options out of range, are errors") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const Doubles& logits : {Doubles{0, nan}, Doubles{nan, 0}}) {
    CHECK(test::contains(test::error_of([&] { choose_token(logits, {}, {.position = 5}); }),
                         "position 5: not finite"));
  }
  const auto error = [](const SamplingOptions& o) { return test::error_of([&] { validate(o); }); };
  CHECK(error({.temperature = -1}) == "temperature: expected at least 0, got -1");
  CHECK(error({.temperature = 1, .top_k = -1}) == "top-k: expected at least 0, got -1");
  CHECK(error({.temperature = 1, .top_p = 0}) == "top-p: expected above 0 and at most 1, got 0");
  CHECK(error({.temperature = 1, .top_p = 1.5}) ==
        "top-p: expected above 0 and at most 1, got 1.5");
  CHECK(test::contains(error({.temperature = 1, .top_p = nan}), "top-p: expected above 0"));
  CHECK(test::contains(error({.top_k = 3}), "top-k: needs a temperature above 0"));
  CHECK(test::contains(error({.top_p = 0.5}), "top-p: needs a temperature above 0"));
  validate({.temperature = 0.7, .top_k = 5, .top_p = 0.9});
}

}  // namespace
}  // namespace fsdp::models
