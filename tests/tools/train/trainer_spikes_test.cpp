// Steps whose gradient is far too large: skipped, or the end of the run, or a rollback. Whole runs
// that roll back: tests/e2e/rollback.sh.
#include <set>

#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "core/io/file.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_training.h"
#include "tools/train/trainer.h"

namespace fsdp::tools {
namespace {

using test::lines_of;
using test::tiny_options;
using test::training;

// A batch whose gradients are far too large; the loss is as usual.
BatchSource with_spikes(BatchSource source, const std::set<int64_t>& spikes) {
  source.get = [spikes, get = source.get](int64_t step) {
    Batch batch = get(step);
    if (spikes.contains(step)) batch.gradient_factor = 1000;
    return batch;
  };
  return source;
}

// Steps as {loss, gradient norm}, and what the run ends with.
struct SpikedRun {
  std::vector<std::pair<double, double>> steps;
  std::string error;
  std::optional<RollBack::Where> rolled_back;
  TrainTotals outcome;
};

SpikedRun spiked_run(const config::SpikeSection& spike, int64_t steps,
                     const std::function<BatchSource(BatchSource)>& change,
                     const TrainTotals& before = {}) {
  const test::TempFolder folder;
  SpikedRun out;
  comm::run_local_ranks(2, [&](comm::Communicator& world) {
    Session session = place_session(world, tiny_options());
    session.initialise(models::from_scratch(3));
    Progress progress(nullptr, -1, 1);
    MetricsLog log = world.rank() == 0 ? MetricsLog(folder / "metrics.jsonl") : MetricsLog();
    const TrainerOptions options = {
        .steps = steps,
        .spike = spike,
        .max_rollbacks = 2,
        .log_every = 1,
        .schedule = {.kind = optim::ScheduleKind::kLinear, .peak = 0.01, .total = 100},
        .resume = before};
    Trainer trainer(session, options, progress, log);
    try {
      const TrainTotals totals = trainer.run(change(training(world)), {});
      if (world.rank() == 0) out.outcome = totals;
    } catch (const RollBack& error) {
      if (world.rank() == 0) out.rolled_back = error.where();
    } catch (const AgreedError& error) {
      if (world.rank() == 0) out.error = error.what();
    }
  });
  for (const Json& line : lines_of(read_file(folder / "metrics.jsonl"))) {
    out.steps.emplace_back(line.at("loss"), line.at("grad_norm"));
  }
  return out;
}

// What is left out changes nothing: not the weights, the optimizer's counts or the learning rate.
TEST_CASE("trainer: a spike is skipped, and the run is that of the other batches, to the bit") {
  const config::SpikeSection skip = {
      .factor = 10, .window = 4, .action = config::SpikeAction::kSkip, .in_a_row = 3};
  const std::set<int64_t> spikes = {2, 7, 8};  // at 2 the window is not full
  const SpikedRun with =
      spiked_run(skip, 14, [&](BatchSource all) { return with_spikes(std::move(all), spikes); });
  CHECK(with.error == "");
  CHECK(std::pair(with.outcome.spikes, with.outcome.skipped) == std::pair<int64_t, int64_t>(2, 2));
  SpikedRun without = spiked_run({}, 12, [&](BatchSource all) {
    all = with_spikes(std::move(all), {2});
    return BatchSource{
        .get = [get = all.get](int64_t step) { return get(step < 7 ? step : step + 2); }};
  });
  REQUIRE(with.steps.size() == 14);
  std::vector<std::pair<double, double>> kept = with.steps;
  CHECK(kept[7].second > 100 * kept[6].second);
  kept.erase(kept.begin() + 7, kept.begin() + 9);
  CHECK(kept == without.steps);
}

TEST_CASE("trainer: spikes that do not end, and those that end or roll back the run") {
  config::SpikeSection spike = {
      .factor = 10, .window = 4, .action = config::SpikeAction::kSkip, .in_a_row = 3};
  const auto all_after = [&](int64_t first, const TrainTotals& before = {}) {
    std::set<int64_t> spikes;
    for (int64_t step = first; step < 30; ++step) spikes.insert(step);
    return spiked_run(
        spike, 20, [&](BatchSource all) { return with_spikes(std::move(all), spikes); }, before);
  };
  CHECK(test::contains(all_after(6).error, ", the last of 3 in a row (train.spike.in_a_row)"));
  spike.action = config::SpikeAction::kStop;
  const std::string stopped = all_after(6).error;
  CHECK(stopped.starts_with("step 7: gradient norm "));
  CHECK(stopped.ends_with(", 10 times the median of 4 steps (train.spike)"));
  spike.action = config::SpikeAction::kRollback;
  const SpikedRun back = all_after(6);
  REQUIRE(back.rolled_back);
  CHECK(back.rolled_back->batch == 6);
  CHECK(back.rolled_back->rollbacks == 1);
  const SpikedRun again = all_after(6, {.rollbacks = 1, .left_out = {{0, 3}}});
  REQUIRE(again.rolled_back);
  CHECK(again.rolled_back->batch == 9);  // step 6 has batch 9
  CHECK(again.rolled_back->rollbacks == 2);
  CHECK(
      all_after(6, {.rollbacks = 2}).error.ends_with(", after 2 rollbacks (train.max_rollbacks)"));
}

}  // namespace
}  // namespace fsdp::tools
