// Which checkpoint --resume means, and which changes of a configuration are the same computation.
#include "tools/checkpoint/resume.h"

#include <cerrno>

#include <doctest/doctest.h>

#include "core/io/checksum.h"
#include "core/io/json.h"
#include "tests/support/io_faults.h"
#include "tests/support/temp_folder.h"
#include "tools/checkpoint/run_folder.h"
#include "tools/launch/launch.h"
#include "tools/report/run_reader.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;

// A run directory with checkpoints that hold no tensor.
class FakeRun {
 public:
  FakeRun() {
    directory = folder / "run";
    fs::create_directories(directory);
    write_file_atomically(directory / "config.yaml", config::to_yaml(config()));
  }
  config::TrainConfig config() const {
    return config::parse_config("", "",
                                {"train.steps=100", "train.lr=0.5", "checkpoint.every=10",
                                 "runtime.run_dir=" + directory.string()});
  }
  // What a run that was started writes into its directory.
  void set_id(const std::string& id, const CheckpointOfRun& origin = {}) const {
    write_json_file(directory / "run_args.json", {{"run", id}, {"resumed_from", to_json(origin)}});
  }
  fs::path add(int64_t step, const std::string& id = "") const {
    const fs::path path = directory / "checkpoints" / fmt::format("step-{}", step);
    fs::create_directories(path);
    Manifest manifest;
    manifest.run = id;
    manifest.progress.steps = step;
    manifest.config = config::to_yaml(config());
    manifest.run_directory = directory.string();
    BlockWriter writer(path / "shard");
    writer.write("values");
    manifest.files = {writer.commit()};
    write_file_atomically(path / kManifestName, manifest_text(manifest));
    return path;
  }
  void finish(int64_t steps, bool interrupted) const {
    write_json_file(directory / "metrics.json", {{"steps", steps}, {"interrupted", interrupted}});
  }

  test::TempFolder folder;
  fs::path directory;
};

ResumePlan plan(const std::string& from, const std::vector<config::Override>& overrides = {},
                bool with_changes = false) {
  return plan_resume({.from = from, .with_changes = with_changes, .overrides = overrides});
}

std::string error_of(const std::string& from, const std::vector<config::Override>& overrides = {}) {
  return test::error_of([&] { plan(from, overrides); });
}

TEST_CASE("resume: a run directory means its newest complete checkpoint") {
  const FakeRun run;
  CHECK(test::contains(error_of(run.directory.string()), "no complete checkpoint in it"));
  run.add(9);
  const fs::path newest = run.add(10);
  fs::create_directories(run.directory / "checkpoints/step-11");
  fs::create_directories(run.directory / "checkpoints/step-12.1-0.tmp");
  for (const char* slash : {"", "/"}) {
    const ResumePlan p = plan(run.directory.string() + slash);
    CHECK(p.checkpoint == newest);
    CHECK(p.run_directory == run.directory);
    CHECK(p.config.train.lr == 0.5);                      // the stored one
    const auto place = p.config.places.find("train.lr");  // a manifest has no lines of it
    CHECK((place != p.config.places.end() && place->second == (newest / kManifestName).string()));
    CHECK(p.manifest->step() == 10);
    CHECK(!p.finished);
    CHECK(p.falls_back);
    // A folder has that name when it is complete: somebody has taken its manifest.
    REQUIRE(p.warnings.size() == 1);
    CHECK(test::contains(p.warnings[0], "step-11: no checkpoint, or an incomplete one"));
  }
  fs::remove(run.directory / "checkpoints/step-11");
  // Cut by a machine that lost its power: the one before.
  fs::resize_file(newest / "shard", 3);
  const ResumePlan before = plan(run.directory.string());
  CHECK(before.manifest->step() == 9);
  REQUIRE(before.warnings.size() == 1);
  CHECK(test::contains(before.warnings[0], "step-10/shard: damaged: expected 6 bytes, got 3"));
  // Known to be damaged by who has read it.
  const ResumePlan known = plan_resume(
      {.from = run.directory.string(),
       .damaged = {{run.directory / "checkpoints/step-10", "step-10: a flipped byte"}}});
  CHECK(known.manifest->step() == 9);
  CHECK(known.warnings ==
        std::vector<std::string>{"step-10: a flipped byte; the checkpoint before it is taken"});
  fs::remove(run.directory / "checkpoints/step-9/shard");
  CHECK(test::contains(error_of(run.directory.string()), "no checkpoint can be read"));
}

TEST_CASE("resume: a run that has ended, and is to do more, does not start over") {
  const FakeRun run;
  const std::string from = run.directory.string();
  run.finish(100, false);
  CHECK(plan(from).finished);
  const std::vector<config::Override> more = {"train.steps=101"};
  CHECK(test::contains(error_of(from, more),
                       "no complete checkpoint in it (checkpoint.every), and "
                       "the run has ended"));
  const fs::path checkpoint = run.add(100);
  CHECK(plan(from, more).checkpoint == checkpoint);
  fs::resize_file(checkpoint / "shard", 3);
  CHECK(plan(from).finished);
  CHECK(test::contains(error_of(from, more), "no checkpoint can be read"));
}

TEST_CASE("resume: a finished run that has not ended well, without a checkpoint") {
  const FakeRun run;
  const std::string from = run.directory.string();
  write_file_atomically(run.directory / "metrics.json",
                        R"({"steps": 100, "interrupted": false,)"
                        R"( "ended": {"status": 76, "reason": "the loss is nan"}})");
  CHECK(plan(from).finished);
  CHECK(plan(from).gave_up == "the loss is nan");
  CHECK(plan(from, {"train.allow_nonfinite_validation=true", "data.validation=v.txt"}).gave_up ==
        "");
}

TEST_CASE("resume: one checkpoint, in its run or in a new one") {
  const FakeRun run;
  const fs::path first = run.add(5);
  CHECK(plan(first.string()).run_directory == run.directory);
  const fs::path later = run.add(8);
  CHECK(test::contains(error_of(first.string()),
                       "its run has later checkpoints, such as " + later.string()));
  const fs::path other = run.folder / "other";
  const ResumePlan fork = plan(first.string(), {"runtime.run_dir=" + other.string()});
  CHECK(fork.run_directory.empty());
  CHECK(fork.config.runtime.run_dir == other.string());
  CHECK(fork.checkpoint == first);
  fs::create_directory(other);
  CHECK(test::contains(error_of(first.string(), {"runtime.run_dir=" + other.string()}),
                       "is there already"));
}

TEST_CASE("resume: auto is for a job that is started again and again") {
  const FakeRun run;
  const std::vector<config::Override> given = {"train.steps=100", "train.lr=0.5",
                                               "checkpoint.every=10",
                                               "runtime.run_dir=" + run.directory.string()};
  CHECK(test::contains(error_of("auto", {"train.steps=100"}), "needs runtime.run_dir"));
  const ResumePlan absent = plan("auto", {"runtime.run_dir=" + (run.folder / "absent").string()});
  CHECK(absent.run_directory.empty());
  CHECK(absent.checkpoint.empty());
  const ResumePlan none = plan("auto", given);  // killed before its first checkpoint
  CHECK(none.run_directory == run.directory);
  CHECK(none.checkpoint.empty());
  const fs::path checkpoint = run.add(10);
  CHECK(plan("auto", given).checkpoint == checkpoint);
  run.finish(10, true);
  CHECK(!plan("auto", given).finished);
  run.finish(100, false);
  CHECK(plan("auto", given).finished);
  write_file_atomically(checkpoint / "shard", "cut");
  const ResumePlan damaged = plan("auto", given);
  CHECK(damaged.finished);  // it needs no checkpoint
  REQUIRE(damaged.notes.size() == 1);
  CHECK(!test::contains(damaged.notes[0], "is taken"));
  fs::remove_all(checkpoint);
  run.add(10);
  std::vector<config::Override> longer = given;
  longer[0] = "train.steps=200";
  CHECK(!plan("auto", longer).finished);
  const fs::path stranger = run.folder / "stranger";
  fs::create_directory(stranger);
  CHECK(plan("auto", {"runtime.run_dir=" + stranger.string()}).checkpoint.empty());
  fs::create_directory(stranger / "lost+found");     // of a fresh volume
  write_file_atomically(stranger / "run.lock", "");  // killed before it had written more
  write_file_atomically(stranger / "run_args.json.77-0.tmp", "");
  CHECK(plan("auto", {"runtime.run_dir=" + stranger.string()}).run_directory == stranger);
  write_file_atomically(stranger / "letter.txt", "");
  CHECK(test::contains(error_of("auto", {"runtime.run_dir=" + stranger.string()}),
                       "stranger: no run directory"));
  CHECK(test::contains(error_of("auto", {"runtime.run_dir=" + (stranger / "letter.txt").string()}),
                       "letter.txt: expected a folder, got a file"));
}

std::vector<config::Override> given_to(const FakeRun& run) {
  return {"train.steps=100", "train.lr=0.5", "checkpoint.every=10",
          "runtime.run_dir=" + run.directory.string()};
}

// The text of a manifest of another version, with the checksum that it would have.
std::string with_version(const std::string& text, const std::string& version) {
  const std::string now = "\"version\": 2";
  const size_t begin = text.find("\",\n"), at = text.find(now);
  REQUIRE(at != text.npos);
  std::string rest = text.substr(begin);
  rest.replace(at - begin, now.size(), "\"version\": " + version);
  return "{\"checksum\": \"" + hex(checksum(rest)) + rest;
}

TEST_CASE(
    "resume: a checkpoint of another version of the program is refused, and not passed over") {
  const FakeRun run;
  run.add(10);
  const fs::path newest = run.add(20);
  const std::string text = read_file(newest / kManifestName);
  for (const auto& [version, words] : {std::pair{"99", "a newer"}, {"1", "an older"}}) {
    write_file_atomically(newest / kManifestName, with_version(text, version));
    for (const std::string& from : {std::string("auto"), run.directory.string()}) {
      const std::string error = error_of(from, given_to(run));
      CHECK(test::contains(error, "step-20/checkpoint.json: version: expected 2, got " +
                                      std::string(version) + ": " + words + " version"));
    }
  }
  CHECK_THROWS_AS(plan_resume({.from = "auto", .from_scratch = true, .overrides = given_to(run)}),
                  OtherFormat);
}

TEST_CASE("resume: what a set-up that failed has left is no other folder") {
  const FakeRun run;
  fs::remove(run.directory / "config.yaml");
  for (const char* name : {"run.lock", "checkpoints/.shared-0123abcd"}) {
    fs::create_directories((run.directory / name).parent_path());
    write_file_atomically(run.directory / name, "");
  }
  CHECK(plan("auto", given_to(run)).run_directory == run.directory);
}

TEST_CASE("resume: what the system refuses a run that goes on is the machine's") {
  const FakeRun run;
  run.add(10);
  write_file_atomically(run.directory / "run_args.json", "{}");
  const auto cause = [&](bool restarted) {
    const test::IoFaults faults(
        run.directory / "run_args.json",
        {.fault = test::IoFault::kError, .from_then_on = true, .error = EACCES, .only = "open"});
    try {
      plan_resume(
          {.from = "auto", .overrides = given_to(run), .before = {.by_parent = restarted ? 1 : 0}});
    } catch (const std::exception& error) {
      return cause_of(error);
    }
    return Cause::kPerson;
  };
  CHECK(cause(false) == Cause::kName);
  CHECK(cause(true) == Cause::kMachine);
}

TEST_CASE("resume: auto does not start over where a checkpoint was complete") {
  const FakeRun run;
  const std::vector<config::Override> given = given_to(run);
  const auto from_scratch = [&] {
    return plan_resume({.from = "auto", .from_scratch = true, .overrides = given});
  };
  CHECK(plan("auto", given).notes ==
        std::vector<std::string>{run.directory.string() +
                                 ": no checkpoint to go on from: the run begins at step 1"});
  note_last_checkpoint(run.directory, {20, "", ""});
  CHECK(error_of("auto", given) ==
        "--resume auto: " + run.directory.string() +
            ": no checkpoint can be read: that of step 20 was complete; --restart-from-scratch "
            "begins again at step 1");
  CHECK(from_scratch().checkpoint.empty());
  fs::create_directories(run.directory / "checkpoints/step-20");
  CHECK(test::contains(error_of("auto", given), "step-20: no checkpoint, or an incomplete one"));
  fs::remove(run.directory / "checkpoints/last.json");
  CHECK(test::contains(error_of("auto", given), "--restart-from-scratch"));
  CHECK(from_scratch().run_directory == run.directory);
  CHECK(test::contains(test::error_of([] { plan_resume({.from_scratch = true}); }),
                       "--restart-from-scratch: only with --resume auto"));
}

// Whether the error is the machine's, so that a later start may do; its text is `what`.
bool may_come_back(const ResumeRequest& request, std::string& what) {
  try {
    plan_resume(request);
  } catch (const std::exception& error) {
    what = error.what();
    return tools::cause_of(error) == Cause::kMachine;
  }
  what = "";
  return false;
}

TEST_CASE("resume: a run that fsdp launch has seen a checkpoint of does not begin where none is") {
  const FakeRun run;
  const fs::path absent = run.folder / "absent";
  ResumeRequest request = {.from = "auto",
                           .overrides = {"runtime.run_dir=" + absent.string()},
                           .before = {.durable_step = 20}};
  std::string what;
  CHECK(may_come_back(request, what));
  CHECK(test::contains(what,
                       "absent: the run is not there, which had a checkpoint of step 20: has "
                       "the mount gone?"));
  fs::create_directory(absent);  // the empty folder that a mount has been on
  CHECK(may_come_back(request, what));
  request.from_scratch = true;
  CHECK(plan_resume(request).checkpoint.empty());
  // The run is there, and its checkpoints are not.
  request.from_scratch = false;
  request.overrides = given_to(run);
  note_last_checkpoint(run.directory, {20, "", ""});
  CHECK(may_come_back(request, what));
  CHECK(test::contains(what, "that of step 20 was complete; nothing is there now"));
  request.before.durable_step = 0;
  CHECK(!may_come_back(request, what));  // a person has removed them
  request.overrides.emplace_back("checkpoint.folder=" + (run.folder / "other_mount").string());
  CHECK(may_come_back(request, what));
}

TEST_CASE("resume: a run that goes on below the last checkpoint known says so") {
  const FakeRun run;
  run.add(10);
  const auto warnings = [&](int64_t known) {
    return plan_resume(
               {.from = "auto", .overrides = given_to(run), .before = {.durable_step = known}})
        .warnings;
  };
  CHECK(warnings(10).empty());
  REQUIRE(warnings(20).size() == 1);
  CHECK(warnings(20)[0] == "resumed from step 10, though the last checkpoint known was of step 20");
}

TEST_CASE("resume: a job that Slurm has started again finds its run directory, or says so") {
  const FakeRun run;
  const fs::path absent = run.folder / "runs/absent";
  ResumeRequest request = {.from = "auto",
                           .overrides = {"runtime.run_dir=" + absent.string()},
                           .before = {.by_slurm = 3}};
  std::string what;
  CHECK(may_come_back(request, what));
  CHECK(test::contains(what,
                       "SLURM_RESTART_COUNT=3): has the mount gone? Where the run has never "
                       "begun: mkdir -p "));
  fs::create_directories(run.folder / "runs");  // or where a mount is missing
  CHECK(may_come_back(request, what));
  // Its first start has made nothing: the folder is known by another run, or was made for it.
  fs::create_directories(run.folder / "runs/other");
  write_file_atomically(run.folder / "runs/other/config.yaml", "");
  write_file_atomically(run.folder / "runs/other/run_args.json", "{}");
  CHECK(plan_resume(request).run_directory.empty());
  fs::remove_all(run.folder / "runs/other");
  fs::create_directory(absent);
  CHECK(plan_resume(request).run_directory == absent);
  fs::remove(absent);
  request.from_scratch = true;
  CHECK(plan_resume(request).run_directory.empty());
}

TEST_CASE("resume: a branch without a checkpoint of its own begins again where it began") {
  const FakeRun trunk, branch;
  trunk.set_id("a");
  const fs::path origin = trunk.add(20, "a");
  branch.set_id("b", {20, origin.string(), "a"});
  const std::vector<config::Override> given = given_to(branch);
  const ResumePlan p = plan("auto", given);
  CHECK(p.checkpoint == origin);
  CHECK(p.run_directory == branch.directory);
  CHECK(p.run == "b");
  CHECK(!p.falls_back);
  REQUIRE(p.notes.size() == 1);
  CHECK(test::contains(p.notes[0], "no checkpoint of its own: the run begins again at"));
  CHECK(plan_resume({.from = "auto", .from_scratch = true, .overrides = given}).checkpoint.empty());
  branch.set_id("b", {20, origin.string(), "c"});
  CHECK(test::contains(error_of("auto", given), "a checkpoint of a third run lies there now"));
  fs::remove_all(origin);
  CHECK(test::contains(error_of("auto", given), "step 20 of another run, and has no checkpoint"));
  branch.add(30, "b");
  CHECK(plan("auto", given).manifest->step() == 30);
}

TEST_CASE("resume: a copy of a checkpoint, and one of another run, are left out by name") {
  const FakeRun run;
  run.set_id("a");
  const fs::path own = run.add(10, "a");
  fs::copy(own, run.directory / "checkpoints/step-80", fs::copy_options::recursive);
  run.add(90, "b");
  const ResumePlan p = plan("auto", given_to(run));
  CHECK(p.checkpoint == own);
  CHECK(p.warnings.empty());  // nothing of this run is lost
  REQUIRE(p.notes.size() == 2);
  CHECK(test::contains(p.notes[0], "step-90: of another run ("));
  CHECK(test::contains(p.notes[1], "step-80: a copy: it holds step 10; it is left out"));
}

TEST_CASE("resume: not further back than was said") {
  const FakeRun run;
  run.add(10);
  std::vector<config::Override> given = given_to(run);
  for (const int step : {20, 30, 40}) fs::resize_file(run.add(step) / "shard", 3);
  CHECK(test::contains(error_of("auto", given),
                       "3 checkpoints that are newer than " +
                           (run.directory / "checkpoints/step-10").string() +
                           " cannot be read, expected at most 2 (checkpoint.max_steps_back): "));
  given.push_back("checkpoint.max_steps_back=3");
  CHECK(plan("auto", given).warnings.size() == 3);
}

TEST_CASE("resume: files of the run directory that were cut keep no run from going on") {
  const FakeRun run;
  const fs::path checkpoint = run.add(10);
  for (const char* name : {"metrics.json", "run_args.json"}) {
    write_file_atomically(run.directory / name, "");
  }
  for (const std::string& from : {std::string("auto"), run.directory.string()}) {
    const ResumePlan p = plan(from, given_to(run));
    CHECK(p.checkpoint == checkpoint);
    CHECK(!p.finished);
    REQUIRE(p.notes.size() == 2);
    CHECK(test::contains(p.notes[0], "run_args.json:1: malformed JSON"));
    CHECK(test::contains(p.notes[1], "metrics.json:1: malformed JSON"));
  }
}

TEST_CASE("resume: folders of other programs are refused by name") {
  const test::TempFolder folder;
  CHECK(test::contains(error_of((folder / "absent").string()), "no such folder"));
  CHECK(test::contains(error_of(folder.path().string()),
                       "neither a run directory (config.yaml) nor a checkpoint (checkpoint.json)"));
  fs::create_directories(folder / "dcp");
  folder.write("dcp/.metadata", "");
  CHECK(test::contains(error_of((folder / "dcp").string()), "a checkpoint of PyTorch's DCP"));
  fs::create_directories(folder / "deepspeed/global_step10");
  CHECK(test::contains(error_of((folder / "deepspeed").string()), "a checkpoint of DeepSpeed"));
  fs::create_directories(folder / "states");
  folder.write("states/zero_pp_rank_0_mp_rank_00_optim_states.pt", "");
  CHECK(test::contains(error_of((folder / "states").string()), "zero_to_fp32.py"));
  CHECK(test::contains(error_of("", {"model.path=" + (folder / "states").string()}),
                       "states: a checkpoint of DeepSpeed"));
}

TEST_CASE("resume: what changes the computation is refused, key by key") {
  const FakeRun run;
  run.add(10);
  const std::string from = run.directory.string();
  const std::vector<config::Override> free = {"fsdp.strategy=no_shard", "runtime.threads=3",
                                              "train.log_every=3",      "train.recompute.mode=full",
                                              "train.micro_steps=2",    "runtime.trace=true"};
  const ResumePlan p = plan(from, free);
  CHECK(p.notes.size() == free.size());
  CHECK(p.config.train.log_every.steps == 3);
  CHECK(test::contains(error_of(from, {"train.lr=0.25", "train.log_every=3", "train.seed=1"}),
                       "continues anyway: train.seed: 42 -> 1, train.lr: 0.5 -> 0.25"));
  const ResumePlan changed = plan(from, {"train.lr=0.25"}, true);
  CHECK(changed.notes == std::vector<std::string>{"changed: train.lr: 0.5 -> 0.25"});
  for (const char* key :
       {"train.batch=3", "train.dtype=bf16", "fsdp.divide_factor=2", "runtime.tf32=true",
        "train.optimizer.beta1=0.5", "data.shuffle=false", "train.schedule.warmup=3",
        "model.dropout=0.5", "data.sequence_length=16"}) {
    CAPTURE(key);
    CHECK(test::contains(error_of(from, {key}), "--resume-with-changes"));
  }
  CHECK(test::contains(
      error_of(from, {"data.pack=documents", "data.pack_window=7", "data.long_rows=drop"}),
      "data.pack_window: 100000 -> 7, data.long_rows: cut -> drop"));
  CHECK(test::contains(error_of(from, {"fsdp.fixed_order=true", "train.rows_per_pass=1"}),
                       "--resume-with-changes"));
  CHECK(plan(from, {"train.rows_per_pass=1"}).config.train.rows_per_pass == 1);
  CHECK(test::contains(test::error_of([] { plan_resume({.with_changes = true}); }),
                       "only with --resume"));
}

TEST_CASE("resume: other units are free, but not in fixed order") {
  const auto refused = [](std::vector<config::Override> before, const char* key) {
    before.push_back("train.rows_per_pass=1");
    const config::TrainConfig old = config::parse_config("", "", before);
    before.push_back(key);
    const std::vector<ConfigChange> changes =
        config_changes(old, config::parse_config("", "", before));
    REQUIRE(changes.size() == 1);
    return changes[0].refused;
  };
  CHECK(!refused({}, "fsdp.wrap=none"));
  CHECK(refused({"fsdp.fixed_order=true"}, "fsdp.wrap=none"));
  CHECK(!refused({"fsdp.fixed_order=true"}, "fsdp.strategy=no_shard"));
}

TEST_CASE("resume: an edit of config.yaml, which does not count, is told") {
  const FakeRun run;
  run.add(10);
  std::string text = config::to_yaml(run.config());
  CHECK(plan(run.directory.string(), {}).notes.empty());
  text.replace(text.find("lr: 0.5"), 7, "lr: 0.25");
  write_file_atomically(run.directory / "config.yaml", text);
  const ResumePlan p = plan(run.directory.string(), {});
  CHECK(p.config.train.lr == 0.5);
  CHECK(p.notes == std::vector<std::string>{
                       "config.yaml: train.lr: 0.25 is not used: the checkpoint has 0.5"});
}

TEST_CASE("resume: more steps, and what they do to the schedule") {
  const FakeRun run;
  run.add(50);
  const ResumePlan p = plan(run.directory.string(), {"train.steps=200"});
  REQUIRE(p.notes.size() == 1);
  // Half a cosine wave: at 50 of 100, and of 200 updates.
  CHECK(test::contains(p.notes[0],
                       "changed: train.steps: 100 -> 200; the schedule ends with it: the learning "
                       "rate of the next step is 0.426777, it would have been 0.25"));
  CHECK(plan(run.directory.string(), {"train.epochs=3"}).config.length_note ==
        "");  // said by notes
  CHECK(test::contains(error_of(run.directory.string(), {"train.steps=49"}),
                       "train.steps: expected at least 50"));
}

TEST_CASE("resume: epochs instead of steps, and the learning rate that follows") {
  const FakeRun run;
  // As run_checkpoints.cpp writes it: 2 epochs of 50 steps.
  const fs::path checkpoint = run.add(50);
  Manifest manifest = read_manifest(checkpoint);
  manifest.config = config::to_yaml(config::parse_config(
      "", "", {"train.epochs=2", "train.lr=0.5", "runtime.run_dir=" + run.directory.string()}));
  manifest.total_steps = 100;
  write_file_atomically(checkpoint / kManifestName, manifest_text(manifest));
  write_file_atomically(run.directory / "config.yaml", manifest.config);
  const auto note = [&](const std::vector<config::Override>& overrides) {
    const ResumePlan p = plan(run.directory.string(), overrides);
    REQUIRE(p.notes.size() == 1);
    return p.notes[0];
  };
  CHECK(note({"train.steps=200"}) ==
        "changed: length of the run: 2 epochs -> 200 steps; the schedule ends with it: the "
        "learning rate of the next step is 0.426777, it would have been 0.25; "
        "train.schedule.total keeps the schedule");
  CHECK(note({"train.steps=100"}) ==
        "changed: length of the run: 2 epochs -> 100 steps; the learning rate of the next step "
        "stays as it was");
  CHECK(note({"train.epochs=3"}) ==
        "changed: length of the run: 2 epochs -> 3 epochs; the schedule ends with it "
        "(train.schedule.total)");
}

TEST_CASE("resume: relative paths are of the folder where the run was started") {
  const FakeRun run;
  const fs::path checkpoint = run.add(5);
  Manifest manifest = read_manifest(checkpoint);
  manifest.config = config::to_yaml(
      config::parse_config("", "",
                           {"data.train=text.txt", "data.tokenizer=bytes", "train.steps=100",
                            "runtime.run_dir=" + run.directory.string()}));
  manifest.working_directory = run.folder.path().string();
  write_file_atomically(checkpoint / kManifestName, manifest_text(manifest));
  write_file_atomically(run.directory / "config.yaml", manifest.config);
  const ResumePlan p = plan(run.directory.string());
  CHECK(p.config.data.train == std::vector<std::string>{(run.folder / "text.txt").string()});
  CHECK(p.config.data.tokenizer == "bytes");
  CHECK(p.notes.empty());
  // What is typed now is of this folder.
  CHECK(plan(run.directory.string(), {"data.train=new.txt"}).config.data.train ==
        std::vector<std::string>{"new.txt"});
  // The folder that it was started in is gone: the run was moved with all that is in it.
  manifest.working_directory = (run.folder / "gone").string();
  write_file_atomically(checkpoint / kManifestName, manifest_text(manifest));
  CHECK(plan(run.directory.string()).config.data.train == std::vector<std::string>{"text.txt"});
}

TEST_CASE("resume: a run directory is no model") {
  const FakeRun run;
  CHECK(error_of("", {"model.path=" + run.directory.string()}) ==
        "model.path: " + run.directory.string() + " is a run directory; the model in it is " +
            (run.directory / "model").string());
}

TEST_CASE("resume: other tokens are another computation") {
  const std::map<std::string, std::string> before = {{"tokens", "a"}, {"tokenizer", "b"}};
  CHECK(compare_data(before, before, false).empty());
  const std::map<std::string, std::string> now = {{"tokens", "c"}, {"tokenizer", "b"}};
  CHECK(
      test::contains(test::error_of([&] { compare_data(before, now, false); }), "tokens: a -> c"));
  CHECK(compare_data(before, now, true) == std::vector<std::string>{"tokens: a -> c"});
}

}  // namespace
}  // namespace fsdp::tools
