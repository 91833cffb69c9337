// Sequences of a stream against the block counts that Hugging Face's group_texts gives.
// Source of the counts: tests/fixtures/packing.json.
// Requirements: S2.5.
#include "tools/data/packing.h"

#include <numeric>
#include <vector>

#include <doctest/doctest.h>

#include "core/io/json.h"
#include "tests/support/temp_folder.h"

namespace fsdp::data {
namespace {

TEST_CASE("numbers of blocks and dropped tokens") {
  const Json fixture = read_json_file(test::fixture_path("packing.json"));
  REQUIRE(fixture["stream"].size() == 12);
  for (const Json& entry : fixture["stream"]) {
    CAPTURE(entry.dump());
    std::vector<int32_t> stream(entry["total_tokens"].get<size_t>());
    std::iota(stream.begin(), stream.end(), 0);  // so that a token says where it is from
    const Packing packing{stream, entry["block_size"]};
    CHECK(packing.sequences() == entry["blocks"]);
    CHECK(packing.dropped() == entry["dropped_tokens"]);
    CHECK(packing.labels_per_sequence() == packing.sequence_length - 1);
    for (const int64_t index : {int64_t{0}, int64_t{1}, packing.sequences() - 1}) {
      const auto sequence = packing.sequence(index);
      REQUIRE(sequence.size() == static_cast<size_t>(packing.sequence_length));
      CHECK(sequence.front() == index * packing.sequence_length);
      CHECK(sequence.back() == (index + 1) * packing.sequence_length - 1);
    }
  }
}

TEST_CASE("fewer tokens than a sequence") {
  const std::vector<int32_t> stream(7);
  CHECK(Packing{stream, 8}.sequences() == 0);
  CHECK(Packing{stream, 8}.dropped() == 7);
  CHECK(Packing{stream, 7}.sequences() == 1);
}

}  // namespace
}  // namespace fsdp::data
