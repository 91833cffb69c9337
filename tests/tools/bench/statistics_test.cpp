// Quantiles against values counted by hand.
#include "tools/bench/statistics.h"

#include <doctest/doctest.h>

#include "core/error.h"

namespace fsdp::tools {

TEST_CASE("statistics: quantiles of unsorted values, linear between neighbours") {
  const std::vector<double> values = {50, 10, 40, 20, 30};
  CHECK(quantile(values, 0) == 10);
  CHECK(quantile(values, 0.25) == 20);
  CHECK(quantile(values, 0.5) == 30);
  CHECK(quantile(values, 0.6) == doctest::Approx(34));
  CHECK(quantile(values, 1) == 50);
  CHECK(quantile({4, 1, 3, 2}, 0.5) == 2.5);
  CHECK(quantile({7}, 0.25) == 7);
  CHECK_THROWS_AS(quantile({}, 0.5), Error);
}

TEST_CASE("statistics: the spread is that between quartiles, as a share of the median") {
  const Spread spread = spread_of({50, 10, 40, 20, 30});
  CHECK(spread.least == 10);
  CHECK(spread.lower_quartile == 20);
  CHECK(spread.median == 30);
  CHECK(spread.upper_quartile == 40);
  CHECK(spread.percent() == doctest::Approx(100.0 * 20 / 30));
}

}  // namespace fsdp::tools
