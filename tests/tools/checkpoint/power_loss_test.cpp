// The power goes at any moment of a run's saves: whatever part of what no fsync has covered is on
// the disk then, --resume auto finds the checkpoint that was reported last, or a newer one, and no
// folder under the name of a checkpoint is less than one. Requirements: S2.10.
#include "tests/support/power_loss.h"

#include <doctest/doctest.h>

#include "tests/support/checkpoint_run.h"
#include "tools/checkpoint/resume.h"
#include "tools/checkpoint/run_checkpoints.h"
#include "tools/checkpoint/run_folder.h"
#include "tools/report/run_reader.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;
using test::IoFaults;
using test::PowerLoss;

std::vector<config::Override> options_of(const fs::path& run) {
  return {"train.steps=9", "checkpoint.every=1", "checkpoint.keep=1",
          "runtime.run_dir=" + run.string()};
}

// Three saves on two ranks: the second removes the checkpoint of the first, the third replaces that
// of the second, as a run does that could not read it. Returns the states by their steps.
std::map<int64_t, StateHash> record_saves(const fs::path& run, PowerLoss& power) {
  std::map<int64_t, StateHash> states;
  comm::run_local_ranks(2, [&](comm::Communicator& world) {
    const bool first = world.rank() == 0;
    Session session = place_session(world, test::checkpoint_options());
    test::initialise_for_checkpoint(session);
    const config::TrainConfig config = config::parse_config("", "", options_of(run));
    Manifest facts;
    facts.config = config::to_yaml(config);
    if (first) write_file_atomically(run / "config.yaml", facts.config);
    world.barrier();
    std::optional<RunCheckpoints> checkpoints;
    const auto save = [&](int64_t step) {
      const StateHash hash = hash_state(session);
      if (first) states[step] = hash;
      CHECK(checkpoints->write({.steps = step}).warnings.empty());
      world.barrier();
      if (first) power.report(step);
      world.barrier();
    };
    checkpoints.emplace(session, config, run, facts);
    test::run_steps(session, 0, 1);
    save(1);
    test::run_steps(session, 1, 2);
    save(2);
    checkpoints.emplace(session, config, run, facts);
    save(2);
  });
  return states;
}

// What is wrong with the folder that is left.
std::string problem_of(const fs::path& run, int64_t reported,
                       const std::map<int64_t, StateHash>& states) {
  for (const auto& [step, folder] : step_folders_in(run / "checkpoints")) {
    Checkpoint checkpoint(folder);
    const std::vector<std::string> damage = checkpoint.verify_all();
    if (!damage.empty()) return damage.front();
    if (checkpoint.manifest().hash != states.at(step)) return folder.string() + ": another state";
  }
  const ResumePlan plan = plan_resume({.from = "auto", .overrides = options_of(run)});
  const int64_t found = plan.manifest ? plan.manifest->step() : 0;
  const int64_t noted = read_run_record(run).last.value_or(CheckpointOfRun{}).step;
  if (found >= std::max(reported, noted)) return "";
  return fmt::format("step {} is found, {} was reported, {} noted", found, reported, noted);
}

PowerLoss::Result search(bool honours_sync) {
  const test::TempFolder folder;
  const fs::path run = folder / "run";
  fs::create_directory(run);
  PowerLoss power(run);
  std::map<int64_t, StateHash> states;
  {
    const IoFaults shows(run, {}, &power);
    states = record_saves(run, power);
  }
  const fs::path left = folder / "left";
  return power.search(left, {.seed = 39, .honours_sync = honours_sync}, [&](int64_t reported) {
    std::string problem;
    const std::string error = test::error_of([&] { problem = problem_of(left, reported, states); });
    return error + problem;
  });
}

TEST_CASE("power loss: a checkpoint that was reported is found, and what is found is whole") {
  const PowerLoss::Result result = search(true);
  CHECK(result.problem == "");
  MESSAGE(result.outcomes << " outcomes of seed 39");
  CHECK(result.outcomes > 200);  // 290 to 330: the order of the two ranks' calls decides
}

TEST_CASE("power loss: a disk whose fsync does nothing loses checkpoints, and the search sees it") {
  CHECK(search(false).problem != "");
}

}  // namespace
}  // namespace fsdp::tools
