// Clocks that are apart, from exchanges that take a while.
// Requirements: S1.23.
#include "tools/doctor/clock_skew.h"

#include <cmath>
#include <mutex>

#include <doctest/doctest.h>

#include "comm/local_transport.h"

namespace fsdp::tools::doctor {
namespace {

TEST_CASE("clocks: the offset lies within the uncertainty, and the shortest exchange decides") {
  constexpr double kAhead = 0.25;
  std::vector<Stamps> own, other;
  for (const double trip : {0.4, 0.02, 0.1}) {
    const double begin = 1e9 + 10 * trip;
    other.push_back({.before = begin, .after = begin + trip});
    // Asked later, answered earlier.
    own.push_back({.before = kAhead + begin + trip / 4, .after = kAhead + begin + trip * 0.9});
  }
  const ClockOffset offset = clock_offset(own, other);
  CHECK(std::abs(offset.seconds - kAhead) <= offset.uncertainty);
  CHECK(offset.uncertainty < 0.02);
  const ClockOffset back = clock_offset(other, own);
  CHECK(back.seconds == doctest::Approx(-offset.seconds));
  CHECK(back.uncertainty == doctest::Approx(offset.uncertainty));
}

TEST_CASE("clocks: ranks of one host have one clock") {
  comm::run_local_ranks(3, [](comm::Communicator& world) {
    const auto stamps = stamp_exchanges(world, 4);
    REQUIRE(stamps.size() == 3);
    for (const std::vector<Stamps>& rank : stamps) {
      REQUIRE(rank.size() == 4);
      const ClockOffset offset = clock_offset(rank, stamps[0]);
      CHECK(std::abs(offset.seconds) <= offset.uncertainty + 1e-5);
      for (size_t i = 0; i < rank.size(); ++i) {
        const double both =
            rank[i].after - rank[i].before + stamps[0][i].after - stamps[0][i].before;
        CHECK(offset.uncertainty <= both / 2 + 1e-5);
      }
    }
  });
}

}  // namespace
}  // namespace fsdp::tools::doctor
