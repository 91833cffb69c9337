// The checkpoints of a run: when, which are kept, which one is the best, and room for them.
// Requirements: S1.8, S2.10.
#include "tools/checkpoint/run_checkpoints.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include "tests/support/checkpoint_run.h"
#include "tests/support/temp_folder.h"
#include "tools/checkpoint/run_folder.h"
#include "tools/launch/launch.h"
#include "tools/report/run_directory.h"
#include "tools/report/run_reader.h"

namespace fsdp::tools {
namespace {

std::vector<int64_t> steps_in(const std::filesystem::path& folder) {
  std::vector<int64_t> steps;
  for (const auto& [step, path] : checkpoints_in(folder)) steps.push_back(step);
  return steps;
}

// Writes one after each step, with these validation losses.
std::vector<int64_t> kept(const config::TrainConfig& config, const std::vector<double>& losses,
                          std::optional<RunCheckpoints::Best>& best) {
  const test::TempFolder folder;
  comm::run_local_ranks(2, [&](comm::Communicator& world) {
    Session session = place_session(world, test::checkpoint_options());
    test::initialise_for_checkpoint(session);
    RunCheckpoints checkpoints(session, config, folder.path(), {});
    for (size_t i = 0; i < losses.size(); ++i) {
      const auto step = static_cast<int64_t>(i) + 1;
      checkpoints.write({.steps = step,
                         .recent_losses = {10 - losses[i]},
                         .validation_loss = losses[i],
                         .validated_at = step});
    }
    CHECK(checkpoints.last() == checkpoints.folder_of(static_cast<int64_t>(losses.size())));
    if (world.rank() == 0) best = checkpoints.best();
  });
  return steps_in(folder / "checkpoints");
}

TEST_CASE("checkpoints: the last ones are kept, and the best one") {
  using Steps = std::vector<int64_t>;
  const std::vector<double> losses = {3, 2, 1, 2, 1, 4};
  config::TrainConfig config;
  std::optional<RunCheckpoints::Best> best;
  config.checkpoint.keep = 0;
  CHECK(kept(config, losses, best) == Steps{1, 2, 3, 4, 5, 6});
  CHECK(!best);
  config.checkpoint.keep = 2;
  CHECK(kept(config, losses, best) == Steps{5, 6});
  config.checkpoint.best = config::BestMetric::kValidationLoss;
  CHECK(kept(config, losses, best) == Steps{3, 5, 6});
  REQUIRE(best);
  CHECK(best->step == 3);  // the first of equal ones
  CHECK(best->value == 1);
  config.checkpoint.keep = 1;
  config.checkpoint.best = config::BestMetric::kTrainLoss;  // 7, 8, 9, 8, 9, 6
  CHECK(kept(config, losses, best) == Steps{6});
  CHECK(kept(config, {9, 2, 3}, best) == Steps{1, 3});
  CHECK(kept(config, {NAN, 2, 1}, best) == Steps{2, 3});
}

TEST_CASE("checkpoints: a validation loss of another step is not this step's") {
  const test::TempFolder folder;
  config::TrainConfig config;
  config.checkpoint.every = config::Interval{.steps = 1};
  config.train.eval_every.steps = 1;
  config.data.validation = {"text"};
  config.checkpoint.best = config::BestMetric::kValidationLoss;
  comm::run_local_ranks(1, [&](comm::Communicator& world) {
    Session session = place_session(world, test::checkpoint_options());
    RunCheckpoints checkpoints(session, config, folder.path(), {});
    checkpoints.write({.steps = 5, .validation_loss = 1.0, .validated_at = 4});
    CHECK(!checkpoints.best());
    RunCheckpoints again(session, config, folder.path(), {});
    std::filesystem::create_directories(folder / "checkpoints/step-3");
    folder.write("checkpoints/step-3/checkpoint.json", "");
    Manifest manifest;
    manifest.config = config::to_yaml(config);
    manifest.metrics = {{"best_step", 3}, {"best_value", 0.5}};
    CHECK(again.go_on(folder / "checkpoints/step-5", manifest) == "");
    again.write({.steps = 6, .validation_loss = 1.0, .validated_at = 6});
    REQUIRE(again.best());
    CHECK(again.best()->step == 3);
  });
  CHECK(read_manifest(folder / "checkpoints/step-6").metrics.at("best_value") == 0.5);
  // Its evaluation comes after the run went on from it: judged, and not written again.
  const std::string before = read_file(folder / "checkpoints/step-6/checkpoint.json");
  comm::run_local_ranks(1, [&](comm::Communicator& world) {
    Session session = place_session(world, test::checkpoint_options());
    RunCheckpoints checkpoints(session, config, folder.path(), {});
    checkpoints.go_on(folder / "checkpoints/step-6", {});  // which has no best one
    checkpoints.write({.steps = 6, .validation_loss = 0.25, .validated_at = 6});
    REQUIRE(checkpoints.best());
    CHECK(checkpoints.best()->value == 0.25);
  });
  CHECK(read_file(folder / "checkpoints/step-6/checkpoint.json") == before);
}

TEST_CASE("checkpoints: the best one counts only where it was judged alike, and is still there") {
  const test::TempFolder folder;
  config::TrainConfig config;
  config.checkpoint.every = config::Interval{.steps = 1};
  config.train.eval_every.steps = 1;
  config.data.validation = {"text"};
  config.checkpoint.best = config::BestMetric::kValidationLoss;
  Manifest manifest;
  manifest.config = config::to_yaml(config);
  manifest.metrics = {{"best_step", 3}, {"best_value", 0.5}};
  manifest.data = {{kValidationTokens, "a"}};
  const auto note_with = [&](const config::TrainConfig& now, const std::string& validation) {
    std::string note;
    comm::run_local_ranks(1, [&](comm::Communicator& world) {
      Session session = place_session(world, test::checkpoint_options());
      Manifest facts;
      facts.data = {{kValidationTokens, validation}};
      RunCheckpoints checkpoints(session, now, folder.path(), facts);
      note = checkpoints.go_on(folder / "checkpoints/step-5", manifest);
      CHECK((note == "") == (checkpoints.best() != std::nullopt));
    });
    return note;
  };
  const std::string before = "the best checkpoint so far, step 3, no longer counts: ";
  CHECK(note_with(config, "a") == before + (folder / "checkpoints/step-3 is gone").string());
  std::filesystem::create_directories(folder / "checkpoints/step-3");
  folder.write("checkpoints/step-3/checkpoint.json", "");
  CHECK(note_with(config, "a") == "");
  CHECK(note_with(config, "b") == before + "it was judged by another loss or text");
  config::TrainConfig by_training = config, fewer = config;
  by_training.checkpoint.best = config::BestMetric::kTrainLoss;
  CHECK(note_with(by_training, "a") == before + "it was judged by another loss or text");
  fewer.train.eval_batches = 3;
  CHECK(note_with(fewer, "a") == before + "it was judged by another loss or text");
}

TEST_CASE("checkpoints: an old one that cannot be removed is a warning") {
  const test::TempFolder folder;
  config::TrainConfig config;
  config.checkpoint.keep = 1;
  comm::run_local_ranks(1, [&](comm::Communicator& world) {
    Session session = place_session(world, test::checkpoint_options());
    RunCheckpoints checkpoints(session, config, folder.path(), {});
    CHECK(checkpoints.write({.steps = 1}).warnings.empty());
    // In the way of the name that it gets while it is removed.
    const std::string name = fmt::format("checkpoints/step-1.{}-0.tmp", ::getpid());
    std::filesystem::create_directories(folder / name);
    folder.write(name + "/file", "");
    const RunCheckpoints::Written written = checkpoints.write({.steps = 2});
    REQUIRE(written.warnings.size() == 1);
    CHECK(test::contains(written.warnings[0], "checkpoints/step-1: cannot be removed: "));
    std::filesystem::remove_all(folder / name);
    CHECK(checkpoints.write({.steps = 3}).warnings.empty());
  });
  CHECK(steps_in(folder / "checkpoints") == std::vector<int64_t>{3});
}

TEST_CASE("checkpoints: what a removal that failed halfway has left goes with the next one") {
  const test::TempFolder folder;
  config::TrainConfig config;
  config.checkpoint.keep = 1;
  comm::run_local_ranks(1, [&](comm::Communicator& world) {
    Session session = place_session(world, test::checkpoint_options());
    RunCheckpoints checkpoints(session, config, folder.path(), {});
    checkpoints.write({.steps = 2});
    const std::string left = fmt::format("checkpoints/step-1.{}-0.tmp", ::getpid());
    folder.write(left + "/shard-0-of-1.safetensors", "half");
    CHECK(checkpoints.write({.steps = 3}).warnings.empty());
    CHECK(!std::filesystem::exists(folder / left));
  });
}

void check_written_by_thread(comm::Offload offload) {
  const test::TempFolder folder;
  config::TrainConfig config;
  config.checkpoint.async = true;
  config.checkpoint.keep = 2;
  PlacedOptions options = test::checkpoint_options();
  options.fsdp.offload = offload;
  options.backend.offload_folder = folder.path().string();
  comm::run_local_ranks(2, [&](comm::Communicator& world) {
    Session session = place_session(world, options);
    test::initialise_for_checkpoint(session);
    RunCheckpoints checkpoints(session, config, folder.path(), {});
    CHECK(!checkpoints.finish());
    CHECK(checkpoints.is_done());
    std::vector<StateHash> hashes;
    for (int64_t step = 1; step <= 3; ++step) {
      test::run_steps(session, step - 1, step);
      hashes.push_back(hash_state(session));
      checkpoints.start({.steps = step});
      CHECK(checkpoints.step_of_write() == step);
      test::run_steps(session, step, step + 1);  // training goes on, and is taken back below
      const auto written = checkpoints.finish();
      REQUIRE(written);
      CHECK(written->step == step);
      CHECK(checkpoints.last() == checkpoints.folder_of(step));
      Checkpoint checkpoint(checkpoints.folder_of(step));
      CHECK(checkpoint.manifest().hash == hashes.back());
      restore(session, checkpoint);
    }
    world.barrier();
  });
  CHECK(steps_in(folder / "checkpoints") == std::vector<int64_t>{2, 3});
}

TEST_CASE("checkpoints: written by a thread, of the moment when that was asked for") {
  check_written_by_thread(comm::Offload::kNone);
  check_written_by_thread(comm::Offload::kAll);
  check_written_by_thread(comm::Offload::kNvme);
}

TEST_CASE(
    "checkpoints: what a thread could not write is said by finish, and the next one is written") {
  const test::TempFolder folder;
  config::TrainConfig config;
  config.checkpoint.async = true;
  config.checkpoint.best = config::BestMetric::kTrainLoss;
  comm::run_local_ranks(2, [&](comm::Communicator& world) {
    Session session = place_session(world, test::checkpoint_options());
    std::vector<std::string> at;
    TracePhases phases(nullptr, [&](const std::vector<std::string>& open) { at = open; });
    session.set_phases(&phases);
    RunCheckpoints checkpoints(session, config, folder.path(), {});
    world.barrier();
    // In the place of the folder.
    if (world.rank() == 0) {
      std::filesystem::remove_all(folder / "checkpoints");
      folder.write("checkpoints", "");
    }
    world.barrier();
    checkpoints.start({.steps = 1, .recent_losses = {1}});
    while (!checkpoints.is_done()) std::this_thread::yield();
    CHECK(at.empty());
    CHECK_THROWS_AS(checkpoints.finish(), AgreedError);
    CHECK(at == std::vector<std::string>{"checkpoint"});  // what a report says of the rank
    CHECK(!checkpoints.best());
    world.barrier();
    if (world.rank() == 0) std::filesystem::remove(folder / "checkpoints");
    world.barrier();
    const RunCheckpoints::Written written = checkpoints.write({.steps = 2, .recent_losses = {2}});
    CHECK(written.step == 2);
    CHECK(written.seconds > 0);
    CHECK(checkpoints.best()->step == 2);
  });
  CHECK(steps_in(folder / "checkpoints") == std::vector<int64_t>{2});
}

// A run went back to an older checkpoint, because this one could not be read: what is under its
// name stays until the new one is on the disk.
TEST_CASE("checkpoints: the last one is noted, and takes the place of one that was passed over") {
  const test::TempFolder folder;
  const config::TrainConfig config;
  comm::run_local_ranks(1, [&](comm::Communicator& world) {
    Session session = place_session(world, test::checkpoint_options());
    Manifest facts;
    facts.run = "00000000000000aa";
    RunCheckpoints checkpoints(session, config, folder.path(), facts);
    CHECK(!read_run_record(folder.path()).last);
    checkpoints.write({.steps = 1});
    folder.write("checkpoints/step-1/damaged", "");
    RunCheckpoints again(session, config, folder.path(), facts);
    again.write({.steps = 1});
    CHECK(!is_there(folder / "checkpoints/step-1/damaged"));
  });
  const RunRecord record = read_run_record(folder.path());
  REQUIRE(record.last);
  CHECK(record.last->step == 1);
  CHECK(record.last->run == "00000000000000aa");
  CHECK(read_manifest(folder / "checkpoints/step-1").run == "00000000000000aa");
  CHECK(names_in(folder / "checkpoints") == std::vector<std::string>{"last.json", "step-1"});
}

TEST_CASE(
    "room for checkpoints: one more than is kept, because a new one comes before an old one goes") {
  config::CheckpointSection section;
  section.every = config::Interval{.steps = 10};
  section.keep = 3;
  CHECK(checkpoints_to_come(section, 1000, 0) == 4);
  CHECK(checkpoints_to_come(section, 1000, 3) == 1);
  CHECK(checkpoints_to_come(section, 1000, 9) == 1);  // keep was larger
  CHECK(checkpoints_to_come(section, 11, 0) == 2);    // no more are written
  CHECK(checkpoints_to_come(section, 0, 0) == 1);
  section.keep = 0;
  CHECK(checkpoints_to_come(section, 1000, 0) == 2);
  section.every.reset();  // by time: how many is not known
  section.keep = 1;
  CHECK(checkpoints_to_come(section, 1, 0) == 2);
}

TEST_CASE("room for checkpoints: what is free and what is needed") {
  const test::TempFolder folder;
  CHECK(missing_room(folder / "not" / "there", 1, 2, 3) == "");
  const uint64_t much = uint64_t{1} << 50;
  CHECK(test::contains(missing_room(folder / "not" / "there", much, 3, 0),
                       "are free; 3 checkpoints of 1048576.00 GiB each need 3145728.00 GiB"));
  CHECK(test::contains(missing_room(folder.path(), 8, 1, 2 * much),
                       "1 checkpoint of 8 bytes each and the trained model need 2097152.00 GiB"));
}

}  // namespace
}  // namespace fsdp::tools
