// Time of collectives that compute did not hide, on timelines drawn by hand.
#include "tools/report/communication_overlap.h"

#include <doctest/doctest.h>

#include "core/rng.h"
#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

TraceEvent event(const std::string& name, const std::string& unit, const std::string& lane,
                 int64_t begin, int64_t end, int64_t bytes = 0) {
  return {name, unit, lane, 0, begin, end, bytes, 0};
}

TEST_CASE("overlap: merging intervals") {
  using List = std::vector<Interval>;
  CHECK(merged({}) == List{});
  CHECK(merged({{5, 7}, {0, 2}, {2, 3}, {6, 6}, {1, 2}}) == List{{0, 3}, {5, 7}});
  CHECK(merged({{0, 10}, {2, 3}}) == List{{0, 10}});
  CHECK(merged({{4, 4}, {9, 8}}) == List{});
}

TEST_CASE("overlap: what lies outside, against counting moment by moment") {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const auto number = [&](uint64_t i, int64_t below) {
      const double u = std::abs(normal_at(seed, 7, i));
      return static_cast<int64_t>(u * 1000) % below;
    };
    std::vector<Interval> intervals;
    std::vector<bool> covered(60, false);
    for (uint64_t i = 0; i < 6; ++i) {
      const int64_t begin = number(2 * i, 50);
      intervals.push_back({begin, begin + number(2 * i + 1, 10)});
      for (int64_t t = begin; t < intervals.back().end; ++t) covered[static_cast<size_t>(t)] = true;
    }
    const Interval asked = {number(20, 30), 30 + number(21, 30)};
    int64_t expected = 0;
    for (int64_t t = asked.begin; t < asked.end; ++t) expected += !covered[static_cast<size_t>(t)];
    CHECK(length(parts_outside(asked, merged(intervals))) == expected);
  }
}

TEST_CASE("overlap: two lanes beside compute, and collectives on the compute stream") {
  // compute   [0    10)          [20   30)[30 32) all_reduce
  // gather       [5      15)
  // reduce            [12  18)          [28    40)
  const CommunicationOverlap seen = measure_overlap({
      event("matmul", "a", "compute", 0, 10),
      event("cast", "b", "gather", 4, 5),  // neither a collective nor compute
      event("all_gather", "b", "gather", 5, 15, 100),
      event("reduce_scatter", "a", "reduce", 12, 18, 50),
      event("matmul", "b", "compute", 20, 30),
      event("all_reduce", "", "compute", 30, 32, 8),
      event("reduce_scatter", "b", "reduce", 28, 40, 70),
  });
  CHECK(seen.compute_ns == 20);
  CHECK(seen.by_kind.size() == 3);
  CHECK(seen.by_kind.at("all_gather").exposed_ns == 5);  // 10 to 15
  CHECK(seen.by_kind.at("all_gather").time_ns == 10);
  CHECK(seen.by_kind.at("all_gather").bytes == 100);
  CHECK(seen.by_kind.at("reduce_scatter").calls == 2);
  CHECK(seen.by_kind.at("reduce_scatter").bytes == 120);
  CHECK(seen.by_kind.at("reduce_scatter").time_ns == 18);
  CHECK(seen.by_kind.at("reduce_scatter").exposed_ns == 6 + 10);
  CHECK(seen.by_kind.at("all_reduce").exposed_ns == 2);
  CHECK(seen.exposed_ns == 8 + 10);  // 10 to 18, 30 to 40
  REQUIRE(seen.by_unit.size() == 3);
  CHECK(seen.by_unit[0].first == "b");
  CHECK(seen.by_unit[0].second.at("reduce_scatter").exposed_ns == 10);
  CHECK(seen.by_unit[1].first == "a");
  CHECK(seen.by_unit[2].first == "");
  const std::string table = format_overlap(seen);
  CHECK(test::contains(table, "all_gather"));
  CHECK(test::contains(table, "b reduce_scatter"));
  CHECK(test::contains(table, "(no unit) all_reduce"));
}

TEST_CASE("overlap: nothing recorded") {
  const CommunicationOverlap seen = measure_overlap({});
  CHECK(seen.by_kind.empty());
  CHECK(seen.exposed_ns == 0);
  CHECK(!format_overlap(seen).empty());
}

}  // namespace
}  // namespace fsdp::tools
