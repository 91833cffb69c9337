// Philox4x32-10 and FNV-1a against known answers; the first vectors of the fixture are those
// published with Random123. Not here: the distributions built on them (rng_test.cpp).
#include <cstdlib>

#include <doctest/doctest.h>

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

}  // namespace
}  // namespace fsdp
