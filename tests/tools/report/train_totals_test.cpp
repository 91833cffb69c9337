// Means of the totals, and that each value that a checkpoint keeps is visited once.
#include "tools/report/train_totals.h"

#include <set>
#include <string_view>

#include <doctest/doctest.h>

namespace fsdp::tools {

TEST_CASE("train totals: means, also before the first step") {
  const TrainTotals none;
  CHECK(none.train_loss() == 0);
  CHECK(none.mean_loss() == 0);
  const TrainTotals some = {.steps = 4, .recent_losses = {1, 2}, .loss_sum = 10};
  CHECK(some.train_loss() == 1.5);
  CHECK(some.mean_loss() == 2.5);
}

TEST_CASE("train totals: every value has a key of its own, and changes what is equal") {
  std::set<std::string_view> kept, printed;
  TrainTotals totals;
  size_t values = 0;
  visit_totals(totals, [&](std::string_view key, std::string_view of_summary, auto& value) {
    ++values;
    kept.insert(key);
    if (!of_summary.empty()) CHECK(printed.insert(of_summary).second);
    const TrainTotals before = totals;
    if constexpr (requires { value.emplace_back(); }) {
      value.emplace_back();
    } else {
      value = 7;
    }
    CHECK(!(totals == before));
  });
  CHECK(kept.size() == values);
  CHECK(printed.contains("skipped_steps"));  // compare and scripts know it
}

TEST_CASE("train totals: the time that is left") {
  StepMetrics metrics = {.totals = {.steps = 20, .step_time_s = 10}, .total_steps = 300};
  CHECK(metrics.seconds_left() == 140);
  metrics.totals = {};
  CHECK(metrics.seconds_left() == 0);
}

}  // namespace fsdp::tools
