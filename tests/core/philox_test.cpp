// Philox4x32-10 against known answers; the streams built on it against their definition.
// The first vectors of the fixture are those published with Random123.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>

#include "core/io/json.h"
#include "core/rng.h"
#include "tests/support/temp_folder.h"

namespace fsdp {
namespace {

template <size_t N>
std::array<uint32_t, N> words_of(const Json& list) {
  REQUIRE(list.size() == N);
  std::array<uint32_t, N> out{};
  for (size_t i = 0; i < N; ++i) {
    out[i] = static_cast<uint32_t>(std::strtoul(list[i].get<std::string>().c_str(), nullptr, 16));
  }
  return out;
}

TEST_CASE("philox4x32 known answers") {
  const Json fixture = read_json_file(test::fixture_path("philox.json"));
  REQUIRE(fixture["vectors"].size() == 39);
  for (const Json& vector : fixture["vectors"]) {
    CAPTURE(vector.dump());
    CHECK(philox4x32(words_of<4>(vector["counter"]), words_of<2>(vector["key"])) ==
          words_of<4>(vector["output"]));
  }
}

TEST_CASE("hash_name is 64-bit FNV-1a") {
  CHECK(hash_name("") == 0xcbf29ce484222325ull);
  CHECK(hash_name("a") == 0xaf63dc4c8601ec8cull);
  CHECK(hash_name("foobar") == 0x85944171f73967e8ull);
}

TEST_CASE("uniform_float is in [0, 1)") {
  CHECK(uniform_float(0) == 0.0f);
  CHECK(uniform_float(0x80000000u) == 0.5f);
  CHECK(uniform_float(0xffffffffu) < 1.0f);
}

TEST_CASE("normal_at has the moments of a standard normal, for every stream its own values") {
  constexpr int kCount = 40'000;
  double sums[4] = {}, cross = 0;
  for (uint64_t i = 0; i < kCount; ++i) {
    const double x = normal_at(7, hash_name("a"), i);
    for (int p = 0; p < 4; ++p) sums[p] += std::pow(x, p + 1) / kCount;
    cross += x * normal_at(7, hash_name("b"), i) / kCount;
  }
  const double sigma = 1 / std::sqrt(double{kCount});  // of the mean
  CHECK(std::abs(sums[0]) < 5 * sigma);
  CHECK(std::abs(sums[1] - 1) < 5 * std::sqrt(2.0) * sigma);
  CHECK(std::abs(sums[2]) < 5 * std::sqrt(15.0) * sigma);
  CHECK(std::abs(sums[3] - 3) < 5 * std::sqrt(96.0) * sigma);
  CHECK(std::abs(cross) < 5 * sigma);
}

TEST_CASE("dropout keys differ in every field") {
  const DropoutKey base{.seed = 1, .step = 2, .micro_step = 3, .layer = 4, .site = 5};
  for (int field = 0; field < 4; ++field) {
    DropoutKey other = base;
    if (field == 0) ++other.seed;
    if (field == 1) ++other.micro_step;
    if (field == 2) ++other.layer;
    if (field == 3) ++other.site;
    CHECK(dropout_key(other) != dropout_key(base));
  }
  CHECK(dropout_counter(1, 2, 3) != dropout_counter(1, 2, 4));  // the step is in the counter
}

}  // namespace
}  // namespace fsdp
