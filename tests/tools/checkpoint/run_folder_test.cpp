// What lies in the folder of a run's checkpoints, whose it is, who may use it, who sees it.
// Requirements: S2.10.
#include "tools/checkpoint/run_folder.h"

#include <algorithm>
#include <thread>

#include <doctest/doctest.h>
#include <unistd.h>

#include "comm/local_transport.h"
#include "tests/support/io_faults.h"
#include "tests/support/temp_folder.h"
#include "tools/launch/launch.h"

namespace fsdp::tools {
namespace {

TEST_CASE("run folder: a folder of their own is locked too") {
  const test::TempFolder one, other;
  const RunLocks locks = take_run_directory(one.path(), other / "shared");
  CHECK(locks.held.size() == 2);
  CHECK(locks.note == "");
  const test::TempFolder second;
  CHECK(test::contains(test::error_of([&] { take_run_directory(second.path(), other / "shared"); }),
                       "shared/run.lock: another run is using this checkpoint.folder: process "));
}

TEST_CASE("run folder: a run directory is one run's, and what a killed run left goes") {
  const test::TempFolder folder;
  const std::filesystem::path checkpoints = folder / "checkpoints";
  for (const char* name : {"checkpoints/step-7.123-0.tmp", "checkpoints/step-5", "model.9-1.tmp",
                           "model", "other.9-1.tmp"}) {
    std::filesystem::create_directories(folder / name);
  }
  for (const char* name : {"metrics.json", "metrics.csv", "eval_results.json", "trainer_state.json",
                           "skipped_rows.jsonl"}) {
    folder.write(name + std::string(".12-0.tmp"), "");
  }
  folder.write("mine.12-0.tmp", "");
  folder.write("checkpoints/.shared-12ab", "");
  folder.write("checkpoints/.shared-12ab.7-0.tmp", "");
  folder.write("checkpoints/step-5/checkpoint.json", "");
  CHECK(checkpoints_in(checkpoints).size() == 1);
  {
    const auto lock = take_run_directory(folder.path(), checkpoints);
    CHECK(test::contains(test::error_of([&] { take_run_directory(folder.path(), checkpoints); }),
                         "run.lock: another run is using this run directory: process " +
                             std::to_string(::getpid())));
  }
  const auto again = take_run_directory(folder.path(), checkpoints);
  std::vector<std::string> left;
  for (const auto& item : std::filesystem::recursive_directory_iterator(folder.path())) {
    left.push_back(item.path().lexically_relative(folder.path()).string());
  }
  std::sort(left.begin(), left.end());
  CHECK(left == std::vector<std::string>{"checkpoints", "checkpoints/step-5",
                                         "checkpoints/step-5/checkpoint.json", "mine.12-0.tmp",
                                         "model", "other.9-1.tmp", "run.lock"});
}

TEST_CASE("run folder: ranks that do not share a file system are told so") {
  const test::TempFolder one, other;
  std::vector<std::string> errors(3);
  comm::run_local_ranks(3, [&](comm::Communicator& world) {
    check_shared_folder(world, one.path());
    try {
      check_shared_folder(world, world.rank() == 2 ? other.path() : one.path(),
                          std::chrono::milliseconds(300));
    } catch (const AgreedError& error) {
      errors[static_cast<size_t>(world.rank())] = error.what();
    }
  });
  for (const std::string& error : errors) {
    CHECK(test::contains(error, "rank 2 on " + host_name() + " does not see what rank 0 on " +
                                    host_name() + " writes to "));
  }
  CHECK(std::filesystem::is_empty(one.path()));
}

// What a set-up leaves that fails or is killed must not keep a later start from the folder.
TEST_CASE("run folder: the file that ranks look for is tried again, and never stays") {
  const test::TempFolder folder;
  for (const char* call : {"open", "fsync", "rename"}) {
    for (const bool from_then_on : {false, true}) {
      CAPTURE(call);
      for (int64_t at = 0; at < (std::string(call) == "fsync" ? 2 : 1); ++at) {
        const test::IoFaults faults(
            folder.path(),
            {.fault = test::IoFault::kError, .at = at, .from_then_on = from_then_on, .only = call});
        const std::string error = test::error_of([&] {
          comm::run_local_ranks(2, [&](comm::Communicator& world) {
            check_shared_folder(world, folder.path(), std::chrono::milliseconds(100),
                                {.retries = 1, .over = std::chrono::milliseconds(0)});
          });
        });
        CHECK((error == "") == !from_then_on);
        CHECK(faults.failed() > 0);
        CHECK(std::filesystem::is_empty(folder.path()));
      }
    }
  }
}

TEST_CASE("run folder: what a set-up has begun is the beginning of a run") {
  const test::TempFolder folder;
  std::filesystem::create_directories(folder / "checkpoints/step-5.12-0.tmp");
  for (const char* name : {"run.lock", "progress.json", "config.yaml.12-0.tmp",
                           "skipped_rows.jsonl", "checkpoints/.shared-12ab"}) {
    folder.write(name, "");
  }
  CHECK(is_beginning_of_run(folder.path()));
  std::filesystem::create_directory(folder / "checkpoints/step-5");
  CHECK(!is_beginning_of_run(folder.path()));
}

TEST_CASE("run folder: a name that a host knows late is waited for") {
  const test::TempFolder one, late;
  comm::run_local_ranks(2, [&](comm::Communicator& world) {
    if (world.rank() == 0) return check_shared_folder(world, one.path());
    // The other name of the folder appears while the rank looks.
    std::filesystem::remove(late.path());
    std::thread later([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(400));
      std::filesystem::create_directory_symlink(one.path(), late.path());
    });
    check_shared_folder(world, late.path());
    later.join();
    std::filesystem::remove(late.path());
    std::filesystem::create_directory(late.path());
  });
}

TEST_CASE("run folder: a run that ends is waited for, and named meanwhile") {
  const test::TempFolder folder;
  auto held = std::make_unique<RunLocks>(take_run_directory(folder.path(), folder / "checkpoints"));
  std::thread ends([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    held.reset();
  });
  std::vector<std::string> said;
  const RunLocks locks = take_run_directory(
      folder.path(), folder / "checkpoints",
      {std::chrono::seconds(60), [&](const auto& line) { said.push_back(line); }});
  ends.join();
  CHECK(locks.held.size() == 1);
  REQUIRE(said.size() == 1);
  CHECK(test::contains(
      said[0], fmt::format("another run is using this run directory: process {} on", ::getpid())));
  CHECK(test::contains(said[0], "waiting for its end for up to 60 s"));
}

Manifest of_run(const std::string& id, const std::string& directory) {
  Manifest manifest;
  manifest.run = id;
  manifest.run_directory = directory;
  return manifest;
}

TEST_CASE("run folder: a checkpoint is its run's, wherever the directory was moved") {
  const test::TempFolder here, other;
  const std::string own = here.path().string(), gone = "/gone/run", there = other.path().string();
  for (const std::string& directory : {own, gone, there}) {
    CHECK(foreign_to(of_run("a", directory), "a", own) == "");
    CHECK(test::contains(foreign_to(of_run("b", directory), "a", own), "of another run (b, of "));
  }
  // A run without an id owns what was written for its directory alone.
  CHECK(foreign_to(of_run("b", own), "", own) == "");
  CHECK(foreign_to(of_run("b", gone), "", own) == "of another run (/gone/run)");
  CHECK(foreign_to(of_run("b", there), "", own) == "of another run (" + there + ")");
  // Written before runs had ids: the directory of another run has to be there.
  for (const char* run : {"a", ""}) {
    CHECK(foreign_to(of_run("", own), run, own) == "");
    CHECK(foreign_to(of_run("", gone), run, own) == "");
    CHECK(foreign_to(of_run("", there), run, own) == "of another run (" + there + ")");
  }
}

}  // namespace
}  // namespace fsdp::tools
