// Every call of the system that a save or a load makes fails once, and all calls from there on:
// there is always a complete older or the new checkpoint, and never a wrong state. As SQLite tests
// its files (https://sqlite.org/testing.html, "I/O error testing").
// Requirements: S2.10.
#include "tests/support/io_faults.h"

#include <cerrno>
#include <numeric>
#include <set>

#include <doctest/doctest.h>

#include "core/io/forget_pages.h"
#include "core/io/safetensors.h"
#include "tests/support/checkpoint_run.h"
#include "tools/checkpoint/resume.h"
#include "tools/checkpoint/run_checkpoints.h"
#include "tools/checkpoint/run_folder.h"
#include "tools/launch/launch.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;
using test::IoFault;
using test::IoFaultPlan;
using test::IoFaults;

// `work` on every rank, with a session that is at step 1.
void with_session(int ranks, const std::function<void(Session&, comm::Communicator& world)>& work) {
  comm::run_local_ranks(ranks, [&](comm::Communicator& world) {
    Session session = place_session(world, test::checkpoint_options());
    test::initialise_for_checkpoint(session);
    test::run_steps(session, 0, 1);
    work(session, world);
  });
}

// What is there is complete; the steps of it.
std::vector<int64_t> sound_steps(const fs::path& run) {
  std::vector<int64_t> steps;
  for (const auto& [step, folder] : checkpoints_in(run / "checkpoints")) {
    steps.push_back(step);
    CHECK(Checkpoint(folder).verify_all().empty());
  }
  return steps;
}

// An error is no crash: nothing unfinished is left, unless it was the removal that failed. The next
// start removes that.
void check_no_remains(const fs::path& run, const std::string& failed_call) {
  static const std::set<std::string> kOfRemoval = {"opendir", "readdir", "stat", "unlink"};
  std::vector<fs::path> remains;
  for (const auto& item : fs::directory_iterator(run / "checkpoints")) {
    if (item.path().extension() == ".tmp") remains.push_back(item.path());
  }
  CAPTURE(failed_call);
  CHECK((remains.empty() || kOfRemoval.contains(failed_call)));
  if (remains.empty()) return;
  take_run_directory(run, run / "checkpoints", {});
  for (const fs::path& each : remains) CHECK(!fs::exists(each));
}

config::TrainConfig run_config(bool async = false) {
  config::TrainConfig config;
  config.checkpoint.async = async;
  config.checkpoint.every = config::Interval{.steps = 1};
  config.checkpoint.keep = 2;
  config.runtime.io_retries = 0;
  return config;
}

// Saves another step beside step 1 with the fault. Returns whether it struck.
bool save_with(RunCheckpoints& checkpoints, comm::Communicator& world, const fs::path& run,
               const IoFaultPlan& plan) {
  static std::optional<IoFaults> faults;  // of all ranks
  const int64_t step = plan.at + 2;
  const std::vector<int64_t> old = {1}, all = {1, step};
  world.barrier();
  if (world.rank() == 0) faults.emplace(run, plan);
  world.barrier();
  std::string error;
  try {
    checkpoints.write({.steps = step});
  } catch (const AgreedError& agreed) {
    error = agreed.what();
  }
  world.barrier();
  const bool struck = faults->failed() > 0;
  world.barrier();
  if (world.rank() == 0) {
    const std::string call = faults->last_failed();
    faults.reset();
    check_no_remains(run, plan.from_then_on ? "unlink" : call);
    const std::vector<int64_t> steps = sound_steps(run);
    CAPTURE(error);
    // An error after the last rename (its folder cannot be synchronised) leaves the new one too.
    CHECK((steps == all || (error != "" && steps == old)));
    if (plan.fault == IoFault::kShort || !struck) CHECK(error == "");
    if (error != "") CHECK(test::contains(error, run.string()));  // the file is named
  }
  world.barrier();
  // The disk is well again.
  checkpoints.write({.steps = step});
  if (world.rank() == 0) {
    CHECK(sound_steps(run) == all);
    fs::remove_all(checkpoints.folder_of(step));
  }
  world.barrier();
  return struck;
}

TEST_CASE("I/O faults: the calls of a save and of a load are counted") {
  const test::TempFolder folder;
  with_session(2, [&](Session& session, comm::Communicator& world) {
    static std::optional<IoFaults> counted;
    if (world.rank() == 0) counted.emplace(folder.path(), IoFaultPlan{});
    world.barrier();
    RunCheckpoints checkpoints(session, run_config(), folder.path(), {});
    checkpoints.write({.steps = 1});
    Checkpoint checkpoint(folder / "checkpoints/step-1");
    restore(session, checkpoint);
    if (world.rank() == 0) CHECK(checkpoint.verify_all().empty());
    world.barrier();
    if (world.rank() != 0) return;
    const auto calls = counted->calls();
    for (const char* call : {"open", "read", "pread", "write", "fsync", "rename", "mkdir", "mmap",
                             "opendir", "readdir", "stat"}) {
      CAPTURE(call);
      CHECK(calls.contains(call));
    }
    counted.reset();
  });
}

// Every call has failed when none does any more.
void fail_each_call(IoFault fault, bool from_then_on, bool async) {
  CAPTURE(static_cast<int>(fault));
  CAPTURE(from_then_on);
  CAPTURE(async);
  const test::TempFolder folder;
  with_session(2, [&](Session& session, comm::Communicator& world) {
    RunCheckpoints checkpoints(session, run_config(async), folder.path(), {});
    checkpoints.write({.steps = 1});
    int64_t at = 0;
    while (save_with(checkpoints, world, folder.path(),
                     {.fault = fault, .at = at, .from_then_on = from_then_on})) {
      ++at;
    }
    CHECK(at >= (fault == IoFault::kError ? 24 : 3));
  });
}

TEST_CASE("I/O faults: a save leaves the checkpoint before, or the new one, whole") {
  for (const bool async : {false, true}) {
    for (const IoFault fault : {IoFault::kError, IoFault::kShort}) {
      for (const bool from_then_on : {false, true}) fail_each_call(fault, from_then_on, async);
    }
  }
}

TEST_CASE("I/O faults: a load is an error or the stored state") {
  const test::TempFolder folder;
  const PlacedOptions options = test::checkpoint_options();
  const Manifest written = test::write_after(2, options, 1, folder / "step-1");
  comm::run_local_ranks(1, [&](comm::Communicator& world) {
    Session session = place_session(world, options);
    for (const IoFault fault : {IoFault::kError, IoFault::kShort}) {
      for (const bool from_then_on : {false, true}) {
        int64_t at = 0;
        for (bool struck = true; struck; ++at) {
          test::initialise_for_checkpoint(session, true);
          const IoFaults faults(folder.path(),
                                {.fault = fault, .at = at, .from_then_on = from_then_on});
          const std::string error = test::error_of([&] {
            Checkpoint checkpoint(folder / "step-1", true, {.retries = 0});
            restore(session, checkpoint);
          });
          struck = faults.failed() > 0;
          CAPTURE(error);
          CAPTURE(at);
          CHECK((error == "") == (!struck || fault == IoFault::kShort));
          CHECK((error != "" || hash_state(session) == written.hash));
          if (error != "") CHECK(test::contains(error, (folder / "step-1").string()));
        }
        CHECK(at > (fault == IoFault::kError ? 6 : 3));
      }
    }
  });
}

// As FUSE with direct_io: a shared mapping is refused, or each mapping.
TEST_CASE("I/O faults: a file system that maps privately, or not at all, is read all the same") {
  const test::TempFolder folder;
  const std::string text(100'000, 'x');
  const fs::path file = folder.write("text", text);
  const auto refused = [](bool always, int error, int64_t at = 0) {
    return IoFaultPlan{
        .fault = IoFault::kError, .at = at, .from_then_on = always, .error = error, .only = "mmap"};
  };
  for (const bool always : {false, true}) {
    for (const int error : {ENODEV, EINVAL, ENOEXEC, EACCES, EOPNOTSUPP}) {
      const IoFaults faults(folder.path(), refused(always, error));
      const MappedFile mapped(file);
      CHECK(faults.failed() == (always ? 2 : 1));
      CHECK(mapped.text() == text);
      forget_pages(mapped);
      CHECK(mapped.text() == text);
    }
    const IoFaults faults(folder.path(), refused(always, EIO));
    CHECK(test::error_of([&] { MappedFile mapped(file); }) ==
          file.string() + ": cannot map: Input/output error");
  }
  // What is read may fail, too.
  const IoFaults reads(folder.path(),
                       {.fault = IoFault::kError, .at = 0, .from_then_on = true, .error = ENODEV});
  CHECK(test::contains(test::error_of([&] { MappedFile mapped(file); }), file.string()));
}

TEST_CASE("I/O faults: weights on a file system that does not map are read") {
  const test::TempFolder folder;
  const fs::path file = folder / "model.safetensors";
  fs::copy_file(test::fixture_path("models/gpt2/model.safetensors"), file);
  const auto sum_of_all = [&] {
    const auto weights = SafetensorsFile::open(file);
    double sum = 0;
    for (const auto& [name, entry] : weights.entries()) {
      std::vector<float> values(static_cast<size_t>(entry.numel));
      weights.read_elements(name, 0, entry.numel, DType::kF32, values.data());
      sum = std::accumulate(values.begin(), values.end(), sum);
    }
    return sum;
  };
  const double mapped = sum_of_all();
  const IoFaults faults(
      folder.path(),
      {.fault = IoFault::kError, .from_then_on = true, .error = ENODEV, .only = "mmap"});
  CHECK(sum_of_all() == mapped);
  CHECK(faults.failed() == 2);
}

TEST_CASE(
    "I/O faults: an error of the disk is no damage: --resume auto neither goes back nor over") {
  const test::TempFolder folder;
  const std::string run = folder.path().string();
  const std::vector<config::Override> given = {"train.steps=9", "checkpoint.every=1",
                                               "runtime.io_retries=0", "runtime.run_dir=" + run};
  const config::TrainConfig config = config::parse_config("", "", given);
  with_session(1, [&](Session& session, comm::Communicator&) {
    Manifest facts;
    facts.config = config::to_yaml(config);
    RunCheckpoints checkpoints(session, config, folder.path(), facts);
    checkpoints.write({.steps = 1});
    checkpoints.write({.steps = 2});
  });
  write_file_atomically(folder / "config.yaml", config::to_yaml(config));
  for (const bool from_then_on : {false, true}) {
    int64_t at = 0;
    for (bool struck = true; struck; ++at) {
      CAPTURE(at);
      const IoFaults faults(folder.path(),
                            {.fault = IoFault::kError, .at = at, .from_then_on = from_then_on});
      ResumePlan plan;
      const std::string error =
          test::error_of([&] { plan = plan_resume({.from = "auto", .overrides = given}); });
      struck = faults.failed() > 0;
      CHECK((error == "") == !struck);
      if (error != "") continue;
      REQUIRE(plan.manifest);
      CHECK(plan.manifest->step() == 2);
      CHECK(plan.notes.empty());
    }
    CHECK(at > 2);
  }
}

TEST_CASE("I/O faults: what fails once and then goes well changes nothing") {
  const test::TempFolder folder;
  const std::vector<config::Override> given = {"train.steps=9999", "checkpoint.every=1",
                                               "runtime.io_retries=1", "runtime.io_retry_s=0",
                                               "runtime.run_dir=" + folder.path().string()};
  const config::TrainConfig config = config::parse_config("", "", given);
  const IoPatience patience = config.runtime.patience();
  write_file_atomically(folder / "config.yaml", config::to_yaml(config));
  with_session(1, [&](Session& session, comm::Communicator&) {
    Manifest facts;
    facts.config = config::to_yaml(config);
    RunCheckpoints checkpoints(session, config, folder.path(), facts);
    const StateHash expected =
        checkpoints.write({.steps = 1}).step == 1 ? hash_state(session) : StateHash{};
    const auto with_fault_at = [&](int64_t at, const std::function<void()>& work) {
      const IoFaults faults(folder.path(), {.fault = IoFault::kError, .at = at, .error = EIO});
      CAPTURE(at);
      CHECK(test::error_of(work) == "");
      return faults.failed() > 0;
    };
    for (int64_t at = 0, step = 2;
         with_fault_at(at, [&] { CHECK(checkpoints.write({.steps = step}).warnings.empty()); });
         ++at, ++step) {
      CHECK(Checkpoint(checkpoints.folder_of(step)).manifest().hash == expected);
    }
    for (int64_t at = 0; with_fault_at(at,
                                       [&] {
                                         const ResumePlan plan =
                                             plan_resume({.from = "auto", .overrides = given});
                                         CHECK(plan.warnings.empty());
                                         Checkpoint checkpoint(plan.checkpoint, true, patience);
                                         restore(session, checkpoint);
                                       });
         ++at) {
      CHECK(hash_state(session) == expected);
    }
  });
}

// FUSE and clients of a network let a signal end calls for which POSIX names no EINTR.
TEST_CASE("I/O faults: a call that a signal ended, or that did a part, is made again at once") {
  for (const IoFault fault : {IoFault::kError, IoFault::kShort}) {
    bool struck = true;
    for (int64_t at = 0; struck; ++at) {
      const test::TempFolder folder;
      CAPTURE(at);
      const IoFaults faults(folder.path(), {.fault = fault, .at = at, .error = EINTR});
      const std::string error = test::error_of([&] {
        make_folders(folder / "a/b");
        write_file_atomically(folder / "a/b/text", "some text");
        CHECK(read_file(folder / "a/b/text") == "some text");
        CHECK(names_in(folder / "a/b") == std::vector<std::string>{"text"});
        for (int i = 0; i < 2; ++i) {
          AtomicFolder made(folder / "a/c", AtomicFolder::Existing::kReplaced);
          write_file_atomically(made.temporary() / "x", "y");
          made.commit();
        }
        const FileLock lock(folder / "lock", "process 7 on host");
        CHECK(lock.problem() == "");
        CHECK(read_file(folder / "lock") == "process 7 on host");
      });
      CHECK(error == "");
      struck = faults.failed() > 0;
      if (!struck) CHECK(at > (fault == IoFault::kError ? 30 : 2));
    }
  }
}

TEST_CASE("I/O faults: a file system without locks or without folders to synchronise") {
  const test::TempFolder folder;
  for (const int error : {ENOSYS, ENOLCK, EOPNOTSUPP}) {
    const IoFaults faults(
        folder.path(),
        {.fault = IoFault::kError, .from_then_on = true, .error = error, .only = "flock"});
    const RunLocks locks = take_run_directory(folder.path(), folder / "checkpoints");
    CHECK(test::contains(locks.note, "run.lock: cannot lock: "));
    CHECK(test::contains(locks.note, ": nothing keeps another run out of this folder"));
  }
  {
    const IoFaults faults(folder.path(), {.fault = IoFault::kError, .only = "flock"});
    CHECK(test::contains(
        test::error_of([&] { take_run_directory(folder.path(), folder / "checkpoints"); }),
        "run.lock: cannot lock: Input/output error"));
  }
  // The second one is the folder's.
  const IoFaults unsupported(folder.path(),
                             {.fault = IoFault::kError, .at = 1, .error = EINVAL, .only = "fsync"});
  AtomicFile other(folder / "y");
  other.write("text");
  other.commit();
  CHECK(unsupported.failed() == 1);
  CHECK(read_file(folder / "y") == "text");
}

}  // namespace
}  // namespace fsdp::tools
