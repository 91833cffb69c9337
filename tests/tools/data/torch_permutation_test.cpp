// Against torch.randperm.
// Requirements: S3.7.
#include "tools/data/torch_permutation.h"

#include <algorithm>

#include <doctest/doctest.h>

#include "core/error.h"
#include "core/io/json.h"
#include "tests/support/temp_folder.h"

namespace fsdp::data {
namespace {

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
