// The bigram yardstick against counts by hand and against a text whose entropy is known.
#include "tools/data/bigram.h"

#include <cmath>

#include <doctest/doctest.h>

#include "core/error.h"

namespace fsdp::data {
namespace {

TEST_CASE("bigram: probabilities by hand") {
  BigramModel model(10);
  const std::vector<int32_t> text = {1, 2, 1, 2, 1, 3};  // 1->2 twice, 2->1 twice, 1->3 once
  model.count(text);
  // Three distinct tokens: P(2|1) = (2+1)/(3+3), P(1|2) = (2+1)/(2+3), P(3|3) = 1/3.
  const auto surprise = [&](std::vector<int32_t> pair) { return model.surprise(pair); };
  CHECK(surprise({1, 2}) == doctest::Approx(-std::log(3.0 / 6)));
  CHECK(surprise({2, 1}) == doctest::Approx(-std::log(3.0 / 5)));
  CHECK(surprise({3, 3}) == doctest::Approx(-std::log(1.0 / 3)));
  CHECK(surprise({1, 2, 1}) == doctest::Approx(surprise({1, 2}) + surprise({2, 1})));
  CHECK(surprise({1, 9}) == surprise({1, 1}));  // never counted = never followed
  CHECK(surprise({5}) == 0);
  CHECK_THROWS_AS(model.count(std::vector<int32_t>{10}), Error);
}

TEST_CASE("bigram: a uniform random text has the entropy of its alphabet") {
  std::vector<int32_t> text;
  uint32_t state = 1;
  for (int i = 0; i < 40000; ++i) {
    state = state * 1664525u + 1013904223u;
    text.push_back(static_cast<int32_t>(state >> 29));  // 8 symbols
  }
  const std::span<const int32_t> all = text;
  CHECK(bigram_entropy(all.first(36000), all.last(4000), 100, 8) ==
        doctest::Approx(std::log(8.0)).epsilon(0.01));
}

TEST_CASE("bigram: the pair across two sequences is not predicted") {
  const std::vector<int32_t> training = {0, 1, 0, 1, 0, 1, 0, 1};
  const std::vector<int32_t> validation = {0, 1, 1, 0};  // as sequences of two: 0 1 | 1 0
  BigramModel model(2);
  model.count(training);
  const std::vector<int32_t> first = {0, 1}, second = {1, 0};
  CHECK(bigram_entropy(training, validation, 2, 2) ==
        doctest::Approx((model.surprise(first) + model.surprise(second)) / 2));
}

}  // namespace
}  // namespace fsdp::data
