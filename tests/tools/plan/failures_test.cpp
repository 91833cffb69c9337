// Daly's formulas: what they are in limits, and that the best interval is the best.
#include "tools/plan/failures.h"

#include <cmath>

#include <doctest/doctest.h>

namespace fsdp::tools {
namespace {

TEST_CASE("failures: the best interval begins as Young's and ends at the mean time") {
  // sqrt(2 x 60 x 86400) = 3219.9 (Young); Daly adds a third of sqrt(d / 2M), and takes d off.
  CHECK(best_interval_s({.mean_s = 86400, .checkpoint_s = 60}) ==
        doctest::Approx(3219.94 * (1 + std::sqrt(60 / 172800.0) / 3 + 60 / 172800.0 / 9) - 60));
  CHECK(best_interval_s({.mean_s = 100, .checkpoint_s = 250}) == 100);
}

TEST_CASE("failures: hardly any loses only the checkpoints, and many lose almost all") {
  const Failures rare = {.mean_s = 1e9, .checkpoint_s = 10, .restart_s = 300};
  CHECK(useful_share(rare, 990) == doctest::Approx(0.99).epsilon(1e-5));
  // By hand: 1000 / (1000 e^0.1 (e^1.01 - 1)).
  CHECK(useful_share({.mean_s = 1000, .checkpoint_s = 10, .restart_s = 100}, 1000) ==
        doctest::Approx(0.518353).epsilon(1e-5));
  CHECK(useful_share({.mean_s = 10, .checkpoint_s = 100, .restart_s = 0}, 10) < 1e-4);
}

TEST_CASE("failures: no other interval leaves more time for work") {
  for (const double checkpoint_s : {1.0, 30.0, 300.0}) {
    const Failures failures = {.mean_s = 7200, .checkpoint_s = checkpoint_s, .restart_s = 120};
    const double best_s = best_interval_s(failures), best = useful_share(failures, best_s);
    for (const double factor : {0.5, 0.8, 1.25, 2.0}) {
      CHECK(useful_share(failures, factor * best_s) < best);
    }
  }
}

}  // namespace
}  // namespace fsdp::tools
