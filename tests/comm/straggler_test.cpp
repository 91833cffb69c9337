// Who is named, from waits written by hand: clocks of their own, noise, two communicators.
#include "comm/straggler.h"

#include <algorithm>
#include <random>

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

using namespace fsdp;
using namespace fsdp::comm;

namespace {

constexpr int64_t kMs = 1'000'000;

struct Case {
  int ranks = 2;
  int steps = 20;
  int late_rank = -1;
  double late_ms = 0;
  double noise_ms = 0;    // a standard deviation of each rank's arrival
  double some_steps = 1;  // the part of steps in which it is late
  int groups = 1;
  int late_ranks = 1;  // from late_rank on
};

// Every rank arrives at some time, all leave with the last; each clock begins elsewhere.
std::vector<RankRings> rings_of(const Case& c) {
  std::mt19937 random(7);
  std::normal_distribution<double> noise(0, 1);
  std::vector<int> members;
  std::vector<RankRings> out;
  for (int r = 0; r < c.ranks; ++r) {
    members.push_back(r);
    out.push_back({.rank = r, .place = "here"});
  }
  for (int g = 0; g < c.groups; ++g) {
    for (RankRings& rank : out)
      rank.rings.push_back({.name = "g" + std::to_string(g), .members = members});
    for (int step = 0; step < c.steps; ++step) {
      std::vector<double> arrival;
      for (int r = 0; r < c.ranks; ++r) {
        const bool late = c.late_rank >= 0 && r >= c.late_rank && r < c.late_rank + c.late_ranks &&
                          step < c.some_steps * c.steps;
        arrival.push_back(100 + c.noise_ms * noise(random) + (late ? c.late_ms : 0));
      }
      const double all = *std::max_element(arrival.begin(), arrival.end());
      for (int r = 0; r < c.ranks; ++r) {
        const auto begin =
            static_cast<int64_t>(1000 * kMs * (r + 1) + arrival[static_cast<size_t>(r)] * kMs);
        const auto wait = static_cast<int64_t>((all + 1 - arrival[static_cast<size_t>(r)]) * kMs);
        out[static_cast<size_t>(r)].rings.back().waits.push_back(
            {.phase = {"step " + std::to_string(step) + ", backward", "backward"},
             .calls = 3,
             .wait_ns = wait,
             .begin_ns = begin,
             .end_ns = begin + 200 * kMs});
      }
    }
  }
  return out;
}

}  // namespace

TEST_CASE("straggler: a rank that is 50 ms late is named, with the phase and the time") {
  for (const int groups : {1, 2}) {  // side by side, so not 100 ms
    for (const int ranks : {2, 4}) {
      const auto found = find_stragglers(rings_of(
          {.ranks = ranks, .late_rank = 1, .late_ms = 50, .noise_ms = 3, .groups = groups}));
      REQUIRE(found.size() == 1);
      CHECK(found[0].rank == 1);
      CHECK(found[0].phase == "backward");
      CHECK(found[0].late_s == doctest::Approx(0.05).epsilon(0.15));
      CHECK(found[0].steps == 20);
      CHECK(test::contains(describe(found[0]), "rank 1 was waited for in backward: "));
      CHECK(test::contains(explain(rings_of({.ranks = ranks, .late_rank = 1, .late_ms = 50})),
                           "rank 1 was waited for in backward: 50.0 ms a step"));
    }
  }
}

TEST_CASE("straggler: nobody is named for noise, however large, nor for what is rare or short") {
  for (const double noise : {0.0, 1.0, 20.0, 200.0}) {
    for (const int ranks : {2, 3, 8}) {
      CAPTURE(noise);
      CAPTURE(ranks);
      CHECK(find_stragglers(rings_of({.ranks = ranks, .noise_ms = noise})).empty());
    }
  }
  CHECK(find_stragglers(rings_of({.late_rank = 1, .late_ms = 500, .some_steps = 0.4})).empty());
  CHECK(find_stragglers(rings_of({.late_rank = 1, .late_ms = 1})).empty());
  CHECK(find_stragglers(rings_of({.steps = 3, .late_rank = 1, .late_ms = 50})).empty());
}

TEST_CASE("straggler: a late host, none of whose ranks is late for the others of it") {
  const auto rings =
      rings_of({.ranks = 4, .late_rank = 2, .late_ms = 50, .noise_ms = 3, .late_ranks = 2});
  CHECK(find_stragglers(rings).empty());
  const auto found = find_stragglers(rings, {0, 0, 2, 2});
  REQUIRE(found.size() == 1);
  CHECK(found[0].rank == 2);
  CHECK(found[0].late_s == doctest::Approx(0.05).epsilon(0.2));
  CHECK(describe(found[0], "node2").starts_with("node2 was waited for in backward: "));
  CHECK(find_stragglers(rings, {0, 0, 0, 0}).empty());
  CHECK(find_stragglers(rings, {0, 1, 0, 1}).empty());  // one late rank on each
  CHECK(find_stragglers(rings_of({.ranks = 4, .noise_ms = 20}), {0, 0, 2, 2}).empty());
}

TEST_CASE("straggler: steps that a rank has forgotten or not finished are left out") {
  auto rings = rings_of({.steps = 12, .late_rank = 0, .late_ms = 50});
  auto& waits = rings[1].rings[0].waits;
  waits.erase(waits.begin(), waits.begin() + 2);
  waits.back().calls = 1;
  const auto found = find_stragglers(rings);
  REQUIRE(found.size() == 1);
  CHECK(found[0].steps == 9);
}
