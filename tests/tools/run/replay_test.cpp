// Which steps can be replayed, what was recorded of them, and steps computed again; which unit is
// named, for every place in which a difference can begin. On more ranks, on processes, and with a
// damaged checkpoint: tests/e2e/replay.sh.
#include "tools/run/replay.h"

#include <algorithm>

#include <doctest/doctest.h>

#include "core/io/file.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_run.h"

namespace fsdp::tools {
namespace {

// What a replay by so many ranks says once the checkpoint is read, and its status.
std::pair<test::Lines, int> replayed(const std::filesystem::path& run, int64_t step, int ranks) {
  const ReplayPlan plan = plan_replay(run, step);
  test::Lines lines;
  int status = -1;
  comm::run_local_ranks(ranks, [&](comm::Communicator& world) {
    RankContext rank{.world = world, .local_ranks = ranks};
    const int mine = replay(plan, rank, [&](const std::string& line) { lines.push_back(line); });
    if (world.rank() == 0) status = mine;
  });
  const auto first = std::find_if(lines.begin(), lines.end(), [](const std::string& line) {
    return line.starts_with("steps ");
  });
  lines.erase(lines.begin(), first);
  return {lines, status};
}

}  // namespace

TEST_CASE("replay: the recorded steps; evaluations and values that are not finite are none") {
  const auto steps = recorded_steps(
      "{\"step\":1,\"loss\":0.1,\"grad_norm\":1e-9}\n"
      "{\"step\":1,\"validation_loss\":3.0,\"best_validation_loss\":3.0}\n"
      "{\"step\":2,\"loss\":null,\"grad_norm\":1.0}\n"
      "{\"step\":3,\"loss\":0.30000000000000004,\"grad_norm\":2.5}\n",
      "metrics.jsonl");
  REQUIRE(steps.size() == 2);
  CHECK(steps.at(1).loss == 0.1);
  CHECK(steps.at(1).grad_norm == 1e-9);
  CHECK(steps.at(3).loss == 0.1 + 0.2);  // to the bit
  CHECK(test::contains(test::error_of([] { recorded_steps("{}\n{\"step\"", "m.jsonl"); }),
                       "m.jsonl:2"));
}

TEST_CASE("replay: what is no run, or has no checkpoint, is said") {
  const test::TempFolder folder;
  const auto error = [&] { return test::error_of([&] { plan_replay(folder.path(), 3); }); };
  CHECK(test::contains(error(), "no config.yaml in it"));
  write_file_atomically(folder / "config.yaml", "{}\n");
  CHECK(test::contains(error(), "no metrics.jsonl"));
  write_file_atomically(folder / "metrics.jsonl", "");
  CHECK(test::contains(error(), "no checkpoint in it (checkpoint.every)"));
}

TEST_CASE("replay: the steps of a run are computed again; a number that was changed is found") {
  const test::TempFolder folder;
  const std::filesystem::path run = folder / "run";
  ResumeRequest request = {.overrides = test::tiny_run(folder, run)};
  request.overrides.insert(request.overrides.end(),
                           {"train.steps=5", "train.log_every=1", "checkpoint.every=2"});
  test::lines_of_run(request);
  const std::string next = (run / "checkpoints/step-4").string();
  CHECK(replayed(run, 4, 2) ==
        std::pair(test::Lines{"steps 3 to 4, compared to the bit", "2 logged steps: equal",
                              next + ": weights and optimizer state: equal"},
                  0));
  CHECK(
      replayed(run, 3, 1) ==
      std::pair(test::Lines{"steps 3 to 4, compared to 0.0001: 1 rank instead of 2",
                            "2 logged steps: equal", next + ": not compared: 1 rank instead of 2"},
                0));
  CHECK(test::error_of([&] { plan_replay(run, 2); }) ==
        "--step: expected 3 to 5, what the run has done after its first checkpoint (step-2), got "
        "2");
  std::string metrics = read_file(run / "metrics.jsonl");
  const size_t place = metrics.find("\"loss\":", metrics.find("{\"step\":4,")) + 7;
  metrics.replace(place, metrics.find(',', place) - place, "0.5");
  write_file_atomically(run / "metrics.jsonl", metrics);
  const auto [lines, status] = replayed(run, 4, 2);
  CHECK(status == 1);
  REQUIRE(lines.size() == 3);
  CHECK(lines[1].starts_with("step 4 is the first that differs: loss 0.5 recorded, "));
}

TEST_CASE("replay: hashes of units say in which unit a difference began") {
  const test::TempFolder folder;
  const std::filesystem::path run = folder / "run";
  ResumeRequest request = {.overrides = test::tiny_run(folder, run)};
  request.overrides.erase(request.overrides.begin() + 2);  // model.layers
  request.overrides.insert(request.overrides.end(),
                           {"model.layers=3", "train.steps=4", "train.log_every=4",
                            "checkpoint.every=2", "checkpoint.unit_hashes=true"});
  test::lines_of_run(request);
  const std::string next = (run / "checkpoints/step-4").string();
  CHECK(replayed(run, 4, 2) ==
        std::pair(test::Lines{"steps 3 to 4, compared to the bit", "1 logged steps: equal",
                              "2 steps: hashes of the weights and gradients of 5 units: equal",
                              next + ": weights and optimizer state: equal"},
                  0));
  // On another number of ranks sums round otherwise.
  CHECK(replayed(run, 4, 1).first.size() == 3);
  const std::string whole = read_file(run / "unit_hashes.bin");
  write_file_atomically(run / "unit_hashes.bin", whole.substr(0, 30));
  CHECK(test::count_lines(replayed(run, 4, 2).first, "no hashes of these steps and units") == 1);
  write_file_atomically(run / "unit_hashes.bin", whole);
  // The gradients of blocks.1 and blocks.0, behind head and blocks.2, in the record before the
  // last.
  std::string hashes = read_file(run / "unit_hashes.bin");
  hashes[hashes.size() - (8 + 5 * 16) - 3 * 16 + 8] ^= 1;
  hashes[hashes.size() - (8 + 5 * 16) - 2 * 16 + 8] ^= 1;
  write_file_atomically(run / "unit_hashes.bin", hashes);
  CHECK(replayed(run, 4, 2) ==
        std::pair(test::Lines{"steps 3 to 4, compared to the bit",
                              "step 3 is the first that differs: in the hashes of its units",
                              "the difference began in unit blocks.1: of step 3 its gradient is "
                              "the first in backward that differs; weights are equal",
                              next + ": weights and optimizer state: equal"},
                  1));
}

namespace {

const std::vector<std::string> kUnits = {"blocks.2", "blocks.1", "blocks.0", "root"};

// Of step 12: hashes of these units differ, by their numbers.
ComparedStep step_with(const std::vector<size_t>& weights, const std::vector<size_t>& gradients) {
  ComparedStep step = {.step = 12};
  step.recorded.resize(kUnits.size());
  step.computed.resize(kUnits.size());
  for (const size_t unit : weights) step.computed[unit].weights = 1;
  for (const size_t unit : gradients) step.computed[unit].gradient = 1;
  return step;
}

TEST_CASE("difference origin: none") { CHECK(origin_of(kUnits, step_with({}, {})) == ""); }

TEST_CASE("difference origin: in backward it is the unit that backward computes first") {
  const std::string expected =
      "the difference began in unit blocks.1: of step 12 its gradient is the first in backward "
      "that differs; weights are equal";
  CHECK(origin_of(kUnits, step_with({}, {1, 2, 3})) == expected);
  CHECK(origin_of(kUnits, step_with({}, {1})) == expected);
}

TEST_CASE("difference origin: where all gradients differ, the loss says whether it was forward") {
  ComparedStep step = step_with({}, {0, 1, 2, 3});
  CHECK(origin_of(kUnits, step) ==
        "the difference began in the forward pass of step 12, or in unit blocks.2, the first in "
        "backward: weights are equal, the gradients of all units are not");
  step.equal_loss = false;
  CHECK(origin_of(kUnits, step) ==
        "the difference began in the forward pass of step 12: weights are equal, the gradients of "
        "all units are not");
  step.equal_loss = true;
  CHECK(test::contains(origin_of(kUnits, step), "in unit blocks.2: of step 12 its gradient"));
}

TEST_CASE("difference origin: weights differ before their gradients do") {
  ComparedStep step = step_with({1}, {0, 1, 2, 3});
  step.equal_loss = false;
  CHECK(origin_of(kUnits, step) ==
        "the difference began in unit blocks.1: weights differ before step 12; the gradients of "
        "step 11 are equal, so its update has done it, or the optimizer's state");
  step.before = StepBefore::kCheckpoint;
  CHECK(test::contains(origin_of(kUnits, step),
                       "step 12; the replay began with these weights, from the checkpoint"));
  step.before = StepBefore::kNoHashes;
  CHECK(test::contains(origin_of(kUnits, step), "; there are no hashes of step 11"));
  CHECK(test::contains(origin_of(kUnits, step_with({0, 3}, {})),
                       "began in units blocks.2, root: weights differ"));
  CHECK(test::contains(origin_of(kUnits, step_with({0, 1, 2, 3}, {})), "began in all units: "));
}

}  // namespace
}  // namespace fsdp::tools
