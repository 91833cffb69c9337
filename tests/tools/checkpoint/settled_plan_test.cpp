// One plan for all ranks, made while nobody else writes into the run directory.
#include "tools/checkpoint/settled_plan.h"

#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;

// A run directory with a checkpoint that holds no tensor.
std::vector<config::Override> make_run(const fs::path& directory, int64_t step) {
  const std::vector<config::Override> given = {"train.steps=100", "checkpoint.every=10",
                                               "runtime.run_dir=" + directory.string()};
  const fs::path path = directory / "checkpoints" / fmt::format("step-{}", step);
  fs::create_directories(path);
  Manifest manifest;
  manifest.progress.steps = step;
  manifest.config = config::to_yaml(config::parse_config("", "", given));
  manifest.run_directory = directory.string();
  write_file_atomically(path / kManifestName, manifest_text(manifest));
  write_file_atomically(directory / "config.yaml", manifest.config);
  return given;
}

TEST_CASE("settled plan: what rank 0 says is what the others know") {
  const test::TempFolder folder;
  const ResumeRequest request = {.from = "auto", .overrides = make_run(folder / "run", 10)};
  const ResumePlan plan = plan_resume(request);
  const ResumePlan told = plan_from_text(plan_text(plan));
  CHECK(plan_text(told) == plan_text(plan));
  CHECK(told.manifest->step() == 10);
  CHECK(told.falls_back);
  CHECK(plan_from_text(plan_text({})).checkpoint.empty());
  ResumePlan done;
  done.gave_up = "the loss is nan";
  CHECK(plan_from_text(plan_text(done)).gave_up == done.gave_up);
}

TEST_CASE("settled plan: a checkpoint that another job wrote meanwhile is the one") {
  const test::TempFolder folder;
  const ResumeRequest request = {.from = "auto", .overrides = make_run(folder / "run", 10)};
  const ResumePlan before = plan_resume(request);
  make_run(folder / "run", 20);
  comm::run_local_ranks(3, [&](comm::Communicator& world) {
    const SettledPlan settled = settle_plan(world, request, before);
    CHECK(settled.plan.manifest->step() == 20);
    CHECK(settled.locks.held.size() == (world.rank() == 0 ? 1 : 0));
    world.barrier();
  });
}

TEST_CASE("settled plan: not while another job writes") {
  const test::TempFolder folder;
  ResumeRequest request = {.from = "auto", .overrides = make_run(folder / "run", 10)};
  request.overrides.emplace_back("runtime.lock_wait_s=0");
  const RunLocks other = take_run_directory(folder / "run", folder / "run/checkpoints");
  comm::run_local_ranks(2, [&](comm::Communicator& world) {
    const std::string error =
        test::error_of([&] { settle_plan(world, request, plan_resume(request)); });
    CHECK(test::contains(error, "another run is using this run directory"));
  });
}

// Ranks as threads see the same folders: rank 1 is sent to another place, as if that had the name.
TEST_CASE("settled plan: a rank that sees no checkpoint, or another one, is refused") {
  const test::TempFolder folder;
  make_run(folder / "here", 10);
  make_run(folder / "other", 10);
  for (const auto& [place, refused] : {std::pair{"here", false}, {"other", true}, {"none", true}}) {
    CAPTURE(place);
    comm::run_local_ranks(2, [&, place = place, refused = refused](comm::Communicator& world) {
      ResumePlan plan;
      plan.manifest = read_manifest(folder / "here/checkpoints/step-10");
      plan.checkpoint =
          folder.path() / (world.rank() == 0 ? "here" : place) / "checkpoints/step-10";
      const std::string error = test::error_of(
          [&] { check_sees_checkpoint(world, plan, std::chrono::milliseconds(100)); });
      CHECK((error != "") == refused);
      CHECK((error == "" || test::contains(error, " does not see the checkpoint ")));
    });
  }
}

}  // namespace
}  // namespace fsdp::tools
