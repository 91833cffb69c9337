// ALiBi: published slopes, positions of padded rows; padding without ALiBi.
// Requirements: S1.2.
#include "models/key_bias.h"

#include <cmath>
#include <limits>

#include <doctest/doctest.h>

#include "kernels/cpu/cpu_backend.h"
#include "tests/support/tiny_models.h"

namespace fsdp::models {
namespace {

TEST_CASE("alibi: slopes for head counts that are and are not a power of two") {
  const std::vector<double> eight = alibi_slopes(8), twelve = alibi_slopes(12);
  for (size_t i = 0; i < 8; ++i) {
    CHECK(eight[i] == std::ldexp(1.0, -static_cast<int>(i) - 1));
    CHECK(twelve[i] == eight[i]);
  }
  const double more[] = {.70710678, .35355339, .1767767, .08838835};
  for (size_t i = 0; i < 4; ++i) CHECK(twelve[8 + i] == doctest::Approx(more[i]).epsilon(1e-7));
  const std::vector<double> many = alibi_slopes(112);  // BLOOM 176B
  REQUIRE(many.size() == 112);
  CHECK(many[0] == doctest::Approx(.91700404).epsilon(1e-8));
  CHECK(many[63] == .00390625);
  CHECK(many[64] == doctest::Approx(.95760328).epsilon(1e-8));
  CHECK(alibi_slopes(1) == std::vector<double>{1.0 / 256});
}

TEST_CASE("key bias: keys are counted without padding, and padding is hidden") {
  cpu::CpuBackend backend;
  const double hidden = -std::numeric_limits<double>::infinity();
  const std::vector<int32_t> mask = {0, 0, 1, 1, 1, 1, 1, 1};
  ModelConfig bloom = test::tiny_bloom();
  bloom.heads = bloom.kv_heads = 2;  // slopes 1/16, 1/256
  const Tensor bias = make_key_bias(bloom, backend, DType::kF32, mask, 2);
  CHECK(bias.shape() == Shape{2, 2, 4});
  CHECK(bias.dtype() == DType::kF32);
  CHECK(bias.to_doubles() == std::vector<double>{hidden, hidden, 0, 1.0 / 16, hidden, hidden, 0,
                                                 1.0 / 256, 0, 1.0 / 16, 2.0 / 16, 3.0 / 16, 0,
                                                 1.0 / 256, 2.0 / 256, 3.0 / 256});
  const Tensor plain = make_key_bias(test::tiny_llama(), backend, DType::kF64, mask, 2);
  CHECK(plain.shape() == Shape{2, 1, 4});
  CHECK(plain.to_doubles() == std::vector<double>{hidden, hidden, 0, 0, 0, 0, 0, 0});
}

}  // namespace
}  // namespace fsdp::models
