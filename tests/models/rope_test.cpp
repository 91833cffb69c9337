// Rotary frequencies against published values and transformers' own tables; cosines and sines.
// Requirements: S1.14.
#include <cmath>

#include <doctest/doctest.h>

#include "core/io/json.h"
#include "kernels/cpu/cpu_backend.h"
#include "models/block.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_models.h"

namespace fsdp::models {
namespace {

using Scaling = RopeConfig::Scaling;

// Golden values are printed with eight digits or more.
void check_frequency(const std::vector<double>& frequencies, size_t index, double golden) {
  CAPTURE(index);
  CHECK(std::abs(frequencies[index] / golden - 1) < 5e-8);
}

TEST_CASE("rope: plain frequencies, as Code Llama has them") {
  const std::vector<double> f = rope_frequencies({.theta = 1e6}, 128);
  REQUIRE(f.size() == 64);
  CHECK(f[0] == 1);
  check_frequency(f, 1, 0.80584219);
  check_frequency(f, 63, 1.24093776e-6);
}

TEST_CASE("rope: linear scaling divides every frequency") {
  const std::vector<double> plain = rope_frequencies({.theta = 1e4}, 16);
  const std::vector<double> scaled =
      rope_frequencies({.theta = 1e4, .scaling = Scaling::kLinear, .factor = 4}, 16);
  for (size_t i = 0; i < plain.size(); ++i) CHECK(scaled[i] == plain[i] / 4);
}

TEST_CASE("rope: llama3 scaling keeps short waves, stretches long ones and blends between") {
  RopeConfig rope = {.theta = 5e5, .scaling = Scaling::kLlama3, .factor = 8};
  const std::vector<double> plain = rope_frequencies({.theta = 5e5}, 128);
  const std::vector<double> f = rope_frequencies(rope, 128);  // Llama 3.1 8B
  for (size_t i = 0; i <= 28; ++i) CHECK(f[i] == plain[i]);
  check_frequency(f, 28, .0032114460);
  check_frequency(f, 29, .0021665708);
  check_frequency(f, 30, .0013718936);
  check_frequency(f, 32, 5.248461610e-4);
  check_frequency(f, 35, 9.556212354e-5);
  check_frequency(f, 63, 3.068925989e-7);
  rope.factor = 32;  // Llama 3.2 1B
  const std::vector<double> small = rope_frequencies(rope, 64);
  CHECK(small[14] == rope_frequencies({.theta = 5e5}, 64)[14]);
  check_frequency(small, 15, .0012905479);
}

TEST_CASE("rope: frequencies of Hugging Face folders against transformers in float64") {
  for (const char* name : {"llama_gqa_llama3", "llama_linear_tied"}) {
    CAPTURE(name);
    const auto folder = test::fixture_path("models") / name;
    const ModelConfig config = read_config(folder / "config.json");
    const Json expected = read_json_file(folder / "reference.json")["rope_inv_freq"];
    const std::vector<double> f = rope_frequencies(config.rope, config.head_dim);
    REQUIRE(f.size() == expected.size());
    for (size_t i = 0; i < f.size(); ++i) {
      CHECK(f[i] == doctest::Approx(expected[i].get<double>()).epsilon(1e-14));
    }
  }
}

TEST_CASE("rope: tables hold cos and sin of position times frequency in the asked dtype") {
  cpu::CpuBackend backend;
  const ModelConfig config = test::tiny_llama();
  const std::vector<double> f = rope_frequencies(config.rope, config.head_dim);
  for (const DType dtype : {DType::kF64, DType::kF32}) {
    const RopeTablesPtr tables = make_rope_tables(config, backend, dtype, 9);
    CHECK(tables->cos.dtype() == dtype);
    CHECK(tables->cos.shape() == Shape{9, 3});
    const std::vector<double> cos = tables->cos.to_doubles(), sin = tables->sin.to_doubles();
    const double error = dtype == DType::kF64 ? 1e-16 : 0x1p-25;
    for (size_t t = 0; t < 9; ++t) {
      for (size_t i = 0; i < 3; ++i) {
        const double angle = static_cast<double>(t) * f[i];
        CHECK(std::abs(cos[t * 3 + i] - std::cos(angle)) <= error);
        CHECK(std::abs(sin[t * 3 + i] - std::sin(angle)) <= error);
      }
    }
  }
  CHECK(make_rope_tables(test::tiny_gpt2(), backend, DType::kF32, 9) == nullptr);
}

TEST_CASE("rope: a buffer dtype rounds the values, not the frequencies") {
  cpu::CpuBackend backend;
  ModelConfig config = test::tiny_llama();
  const std::vector<double> f = rope_frequencies(config.rope, config.head_dim);
  constexpr int64_t kFar = 3000;  // where a bf16 frequency would be whole turns off
  config.buffer_dtype = DType::kBF16;
  const RopeTablesPtr tables = make_rope_tables(config, backend, DType::kF32, kFar + 1);
  const std::vector<double> cos = tables->cos.to_doubles();
  for (size_t i = 0; i < 3; ++i) {
    const double exact = std::cos(static_cast<double>(kFar) * f[i]);
    const double got = cos[kFar * 3 + i];
    CHECK(got == double(BFloat16(static_cast<float>(exact))));
    CHECK(std::abs(got - exact) <= 0x1p-9);
  }
}

}  // namespace
}  // namespace fsdp::models
