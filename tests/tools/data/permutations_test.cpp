// The permutations that numpy and torch draw.
// Requirements: S1.4, S3.7.
#include "tools/data/permutations.h"

#include <algorithm>

#include <doctest/doctest.h>

#include "core/error.h"
#include "core/io/json.h"
#include "tests/support/temp_folder.h"

namespace fsdp::data {
namespace {

using Numbers = std::vector<int64_t>;

Numbers first(Numbers numbers, size_t n) {
  numbers.resize(std::min(n, numbers.size()));
  return numbers;
}

TEST_CASE("permutations are numpy's") {
  int compared = 0;
  for (const Json& entry : read_json_file(test::fixture_path("numpy_permutations.json"))) {
    const int64_t n = entry["n"];
    const uint64_t seed = entry["seed"];
    CAPTURE(n);
    CAPTURE(seed);
    const Numbers expected = entry["first"].get<Numbers>();
    Numbers got = numpy_permutation(n, seed);
    CHECK(first(got, expected.size()) == expected);
    std::sort(got.begin(), got.end());
    for (int64_t i = 0; i < n; ++i) REQUIRE(got[static_cast<size_t>(i)] == i);
    ++compared;
  }
  CHECK(compared == 14);
}

// The rows that a published script took of SQuAD: shuffle(seed=42).select(range(8)).
TEST_CASE("the first rows of SQuAD by seed 42") {
  CHECK(first(numpy_permutation(87'599, 42), 8) ==
        Numbers{83168, 49357, 60182, 66356, 62643, 46228, 85725, 22037});
  CHECK(first(numpy_permutation(10'570, 42), 8) ==
        Numbers{7115, 8833, 5552, 7967, 721, 7047, 5921, 90});
}

// numpy 2.4.6: a seed of more than 32 bits is two words of entropy.
TEST_CASE("long seeds") {
  CHECK(numpy_permutation(8, 0xffff'ffff) == Numbers{0, 6, 4, 5, 3, 2, 1, 7});
  CHECK(numpy_permutation(8, 0x1'0000'0000) == Numbers{1, 3, 7, 6, 0, 4, 2, 5});
  CHECK(numpy_permutation(8, INT64_MAX) == Numbers{6, 3, 2, 5, 0, 7, 1, 4});
}

TEST_CASE("sizes without a permutation") {
  CHECK(numpy_permutation(0, 1).empty());
  CHECK(test::error_of([] { numpy_permutation((int64_t{1} << 32) + 1, 1); }) ==
        "[numpy_permutation] size: expected 0 to 2^32, got 4294967297");
}

TEST_CASE("torch.randperm with a seeded generator") {
  const Json fixture = read_json_file(test::fixture_path("objectives.json"));
  for (const Json& entry : fixture["permutations"]) {
    CAPTURE(entry.dump());
    std::vector<uint32_t> order = torch_permutation(entry["n"], entry["seed"]);
    const auto first = entry["first"].get<std::vector<int64_t>>();
    const auto last = entry["last"].get<std::vector<int64_t>>();
    CHECK(std::equal(first.begin(), first.end(), order.begin()));
    CHECK(std::equal(last.rbegin(), last.rend(), order.rbegin()));
    std::sort(order.begin(), order.end());
    for (size_t i = 0; i < order.size(); ++i) REQUIRE(order[i] == i);
  }
  CHECK(fixture["permutations"].size() == 5);
  CHECK(torch_permutation(0, 1).empty());
  CHECK(test::contains(test::error_of([] { torch_permutation(int64_t{1} << 31, 0); }),
                       "expected fewer than 214748364 sequences"));
}

}  // namespace
}  // namespace fsdp::data
