// Which rows share a sequence: results of another program, and rows at the limits.
#include "tools/data/bins.h"

#include <cstdio>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "core/error.h"
#include "core/io/json.h"
#include "tests/support/lengths_of_rows.h"
#include "tests/support/sha256.h"
#include "tests/support/source_folder.h"
#include "tests/support/temp_folder.h"

namespace fsdp::data {
namespace {

using Lengths = std::vector<uint32_t>;
using RowLists = std::vector<std::vector<uint32_t>>;

RowLists rows_in(const Bins& bins) {
  RowLists out;
  for (int64_t i = 0; i < bins.count(); ++i) {
    const auto rows = bins.rows_of(i);
    out.emplace_back(rows.begin(), rows.end());
  }
  return out;
}

std::string text_of(const Bins& bins) {
  std::string out;
  for (const auto& bin : rows_in(bins)) {
    if (!out.empty()) out += ";";
    for (size_t i = 0; i < bin.size(); ++i) out += (i > 0 ? "," : "") + std::to_string(bin[i]);
  }
  return out;
}

void check_all(const std::filesystem::path& file, size_t expected) {
  const Json all = read_json_file(file);
  for (const Json& result : all.at("packed")) {
    CAPTURE(result.dump());
    const auto lengths = all.at("lengths").at(result.at("lengths").text()).get<Lengths>();
    const int64_t capacity = result.at("capacity");
    const Bins bins = pack_rows(lengths, capacity, result.at("window"));
    CHECK(bins.count() == result.at("bins").get<int64_t>());
    CHECK(test::sha256(text_of(bins)) == result.at("sha256").text());
  }
  CHECK(all.at("packed").size() == expected);
}

TEST_CASE("bins: the results of another program, bit by bit") {
  check_all(test::fixture_path("chat/packing.json"), 8);
  const auto full = test::source_folder() / "../shared/fixtures/chat/packing.json";
  if (std::filesystem::exists(full)) {
    check_all(full, 18);
  } else {
    std::printf("[SKIP] ../shared/fixtures/chat/packing.json is not there\n");
  }
}

TEST_CASE("bins: rows that are too long, of no token, of one token, and all alike") {
  CHECK(rows_in(pack_rows(Lengths{5, 2, 3, 1}, 4, 100)) == RowLists{{0}, {2, 3}, {1}});
  CHECK(rows_in(pack_rows(Lengths{3, 2}, 8, 100)) == RowLists{{0, 1}});
  CHECK(rows_in(pack_rows(Lengths{0, 1, 0, 1, 4}, 4, 100)) == RowLists{{4}, {1, 3}});
  CHECK(rows_in(pack_rows(Lengths(5, 2), 4, 100)) == RowLists{{0, 1}, {2, 3}, {4}});
  CHECK(rows_in(pack_rows(Lengths{1, 2, 0, 3}, 9, 1)) ==
        RowLists{{0}, {1}, {3}});  // a window of one
  CHECK(rows_in(pack_rows(Lengths{1, 2, 3, 4}, 9, 2)) == RowLists{{1, 0}, {3, 2}});
  CHECK(pack_rows({}, 4, 1).count() == 0);
  CHECK(pack_rows(Lengths{0, 0}, 4, 1).count() == 0);
  CHECK(rows_in(pack_rows(Lengths{UINT32_MAX, 1}, UINT32_MAX, 2)) == RowLists{{0}, {1}});
  for (const auto& [capacity, window] :
       {std::pair<int64_t, int64_t>{0, 1}, {4, 0}, {1LL << 32, 1}}) {
    CHECK_THROWS_AS(pack_rows(Lengths{1}, capacity, window), Error);
  }
}

TEST_CASE("bins: each row is in one bin, and no bin holds more than its capacity") {
  const Lengths lengths = test::lengths_of_rows(5000, 7);
  for (const int64_t window : {1, 2, 77, 5000, 1 << 20}) {
    const Bins bins = pack_rows(lengths, 300, window);
    std::vector<int> times(lengths.size());
    for (const auto& bin : rows_in(bins)) {
      int64_t tokens = 0;
      for (const uint32_t row : bin) {
        ++times[row];
        tokens += std::min<int64_t>(lengths[row], 300);
        CHECK(row / window == bin.front() / window);
      }
      CHECK(tokens <= 300);
    }
    CHECK(times == std::vector<int>(lengths.size(), 1));
  }
}

// Two of these rows fill a sequence. A search tree for capacities that are powers of two finds no
// second row here.
TEST_CASE("bins: rows near half of an odd capacity share sequences") {
  std::mt19937_64 random(3);
  Lengths lengths;
  for (int i = 0; i < 3000; ++i) lengths.push_back(static_cast<uint32_t>(3900 + random() % 393));
  CHECK(pack_rows(lengths, 8193, 100'000).count() < 1520);
}

}  // namespace
}  // namespace fsdp::data
