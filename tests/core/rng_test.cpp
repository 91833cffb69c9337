// Distributions and keys over Philox: normal numbers are functions of (seed, name, index) with the
// right moments; dropout keys and counters do not collide. The generator itself: philox_test.cpp.
#include "core/rng.h"

#include <bit>
#include <cmath>
#include <set>

#include <doctest/doctest.h>

namespace fsdp {
namespace {

TEST_CASE("normal numbers have the moments and the tails of a normal distribution") {
  constexpr int kCount = 200000;
  double sum = 0, square = 0, cube = 0, fourth = 0, neighbours = 0, before = 0;
  int beyond_two = 0;
  for (uint64_t i = 0; i < kCount; ++i) {
    const double x = normal_at(7, hash_name("blocks.0.mlp.up.weight"), i);
    sum += x;
    square += x * x;
    cube += x * x * x;
    fourth += x * x * x * x;
    neighbours += x * before;
    beyond_two += std::abs(x) > 2 ? 1 : 0;
    before = x;
  }
  // Limits: four standard errors of each statistic.
  const double root = std::sqrt(static_cast<double>(kCount));
  CHECK(std::abs(sum / kCount) < 4 / root);
  CHECK(std::abs(square / kCount - 1) < 4 * std::sqrt(2.0) / root);
  CHECK(std::abs(cube / kCount) < 4 * std::sqrt(15.0) / root);
  CHECK(std::abs(fourth / kCount - 3) < 4 * std::sqrt(96.0) / root);
  CHECK(std::abs(neighbours / kCount) < 4 / root);
  CHECK(std::abs(beyond_two / static_cast<double>(kCount) - 0.0455) < 4 * 0.21 / root);
}

TEST_CASE("a normal number depends on seed, name and index, and on nothing else") {
  const uint64_t name = hash_name("w");
  CHECK(normal_at(1, name, 5) == normal_at(1, name, 5));
  CHECK(normal_at(1, name, 5) == normal_pair(1, name, 2)[1]);
  CHECK(normal_at(1, name, 4) == normal_pair(1, name, 2)[0]);
  CHECK(normal_at(1, name, 5) != normal_at(2, name, 5));
  CHECK(normal_at(1, name, 5) != normal_at(1, hash_name("v"), 5));
  // High words count: no repetition every 2^32 pairs, seeds or names.
  CHECK(normal_at(1, name, 5) != normal_at(1, name, 5 + (uint64_t{1} << 33)));
  CHECK(normal_at(1, name, 5) != normal_at(1 + (uint64_t{1} << 32), name, 5));
  CHECK(normal_at(1, name, 5) != normal_at(1, name ^ (uint64_t{1} << 40), 5));
}

TEST_CASE("dropout keys differ in every field") {
  std::set<std::array<uint32_t, 2>> keys;
  int count = 0;
  for (const uint64_t seed : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32}) {
    for (uint32_t micro_step = 0; micro_step < 3; ++micro_step) {
      for (uint32_t layer = 0; layer < 5; ++layer) {
        for (uint32_t site = 0; site < 4; ++site, ++count) {
          keys.insert(dropout_key(
              {.seed = seed, .step = 9, .micro_step = micro_step, .layer = layer, .site = site}));
        }
      }
    }
  }
  CHECK(static_cast<int>(keys.size()) == count);
  // The step is in the counter, so that a key is computed once per site and run.
  CHECK(dropout_key({.seed = 3, .step = 1}) == dropout_key({.seed = 3, .step = 2}));
}

TEST_CASE("dropout counters differ in step, sample and block") {
  std::set<Philox4x32> counters;
  int count = 0;
  for (uint32_t step = 0; step < 3; ++step) {
    for (const uint64_t sample : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32}) {
      for (const uint64_t block : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32}) {
        counters.insert(dropout_counter(block, sample, step));
        ++count;
      }
    }
  }
  CHECK(static_cast<int>(counters.size()) == count);
}

TEST_CASE("draws of rounding differ in seed, update, parameter and element") {
  std::set<Philox4x32> words;
  int count = 0;
  for (const uint64_t seed : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32}) {
    for (const uint32_t update : {0u, 1u, 1u << 31}) {
      for (const uint64_t name :
           {hash_name("v"), hash_name("w"), hash_name("w") ^ (uint64_t{1} << 40)}) {
        for (const uint64_t block : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32}) {
          words.insert(RoundingStream(seed, update).words(name, block));
          ++count;
        }
      }
    }
  }
  CHECK(static_cast<int>(words.size()) == count);
  std::set<uint32_t> draws;  // eight halves of the four words
  const Philox4x32 block = {0x00020001, 0x00040003, 0x00060005, 0x00080007};
  for (uint32_t i = 0; i < 8; ++i) draws.insert(RoundingStream::draw(block, i));
  CHECK(draws == std::set<uint32_t>{1, 2, 3, 4, 5, 6, 7, 8});
}

// Over all draws, which are equally likely: no statistics.
TEST_CASE("rounding by chance gives the value on average, and one of its two neighbours") {
  for (const float x : {1.0f, 1.0f + 0x1p-23f, -1.00001f, 0.1f, -3.3e-39f, 1e-45f, 3e38f}) {
    CAPTURE(x);
    const auto bits = std::bit_cast<uint32_t>(x);
    uint64_t away = 0;
    bool neighbours = true;
    for (uint32_t draw = 0; draw < 0x10000; ++draw) {
      const uint32_t rounded = rounded_by_chance(bits, draw);
      neighbours &= rounded == bits >> 16 || rounded == (bits >> 16) + 1;
      away += rounded - (bits >> 16);
    }
    CHECK(neighbours);
    CHECK(away == (bits & 0xffff));  // of 65536: as far as it lies from the nearer to zero
  }
  for (const uint32_t draw : {0u, 0x8000u, 0xffffu}) {
    CHECK(rounded_by_chance(0x7f800000u, draw) == 0x7f80);  // infinities
    CHECK(rounded_by_chance(0xff800000u, draw) == 0xff80);
    CHECK(rounded_by_chance(0x7f800001u, draw) == 0x7fc0);  // NaN whose lower half would be lost
    CHECK(rounded_by_chance(0xffffffffu, draw) == 0xffff);
    CHECK(rounded_by_chance(0x80000000u, draw) == 0x8000);  // -0
  }
}

TEST_CASE("uniform numbers lie in [0, 1)") {
  CHECK(uniform_float(0) == 0);
  CHECK(uniform_float(0xffffffffu) < 1);
  CHECK(uniform_float(0x80000000u) == 0.5f);
  double sum = 0, squares = 0;
  std::set<double> distinct;
  constexpr uint64_t kCount = 10'000;
  for (uint64_t i = 0; i < kCount; ++i) {
    const double x = uniform_at(7, hash_name("w"), i);
    CHECK((x >= 0 && x < 1));
    distinct.insert(x);
    sum += x;
    squares += x * x;
  }
  CHECK(distinct.size() == kCount);
  // Five standard errors.
  CHECK(std::abs(sum / kCount - 0.5) < 5 * std::sqrt(1.0 / 12 / kCount));
  CHECK(std::abs(squares / kCount - 1.0 / 3) < 5 * std::sqrt(4.0 / 45 / kCount));
  CHECK(uniform_at(8, hash_name("w"), 0) != uniform_at(7, hash_name("w"), 0));
  CHECK(uniform_at(7, hash_name("v"), 0) != uniform_at(7, hash_name("w"), 0));
}

}  // namespace
}  // namespace fsdp
