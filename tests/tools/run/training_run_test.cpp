// A whole run on ranks as threads: what it says, and that it is over when it has done its steps.
// Checkpoints, models and metrics of runs: tests/e2e.
// Requirements: S2.13, S4.3.
#include "tools/run/training_run.h"

#include <fstream>

#include <doctest/doctest.h>

#include "core/io/json.h"
#include "tests/support/tiny_run.h"
#include "tests/support/tiny_training.h"
#include "tools/checkpoint/manifest.h"
#include "tools/launch/end_note.h"
#include "tools/report/device_snapshot.h"
#include "tools/report/failure_log.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;
using test::Lines;
using test::lines_of_run;
using test::tiny_run;

// The last lines of a run, and its summary: the rule is tested in tests/comm/straggler_test.cpp.
TEST_CASE("training run: says at its end which rank was waited for, and in a healthy one nobody") {
  for (const int late : {1, -1}) {
    CAPTURE(late);
    const test::TempFolder folder;
    const fs::path directory = folder / "run";
    ResumeRequest request = {.overrides = tiny_run(folder, directory)};
    request.overrides.push_back("train.steps=16");
    Lines notes;
    for (const std::string& line : lines_of_run(request, late)) {
      if (test::contains(line, "was waited for")) notes.push_back(line);
    }
    CHECK(!fs::exists(directory / "checkpoints"));  // a short run that was not told
    const Json named =
        parse_json(read_file(directory / "metrics.json"), "metrics.json").at("stragglers");
    if (late < 0) {
      CHECK(notes.empty());
      CHECK(named.size() == 0);
      continue;
    }
    REQUIRE(notes.size() == 1);
    CHECK(notes[0].starts_with("note: rank 1 was waited for in backward: "));
    REQUIRE(named.size() == 1);
    CHECK(named.at(0).at("rank") == 1);
    CHECK(named.at(0).at("phase").text() == "backward");
  }
}

TEST_CASE(
    "training run: rank 0 says what it does; once it is done there is nothing to go on with") {
  const test::TempFolder folder;
  const fs::path directory = folder / "run";
  ResumeRequest request = {.from = "auto", .overrides = tiny_run(folder, directory)};
  request.overrides.insert(request.overrides.end(), {"train.steps=2", "checkpoint.every=2"});
  const Lines first = lines_of_run(request);
  const auto count = [&](const std::string& part) { return test::count_lines(first, part); };
  CHECK(count("full_shard on 2 ranks") == 1);
  CHECK(count("adamw on the CPU: " + cpu_instruction_set() + " arithmetic, 1 thread a rank") == 1);
  CHECK(count("rank 1 on " + host_name() + ": CPU, 1 thread, process ") == 1);
  CHECK(count("rank 0 on ") == 0);
  CHECK(count("tokenizer: bytes (257 tokens)") == 1);
  CHECK(count("step 2: checkpoint " + (directory / "checkpoints/step-2").string()) == 1);
  CHECK(first.back() == "\nrun directory: " + directory.string());
  CHECK(fs::exists(directory / "metrics.json"));
  CHECK(lines_of_run(request) ==
        Lines{directory.string() + ": this run has done its 2 steps: nothing to go on with"});
  // Another kind of processor adds up in another order.
  const fs::path file = directory / "checkpoints/step-2" / kManifestName;
  Manifest manifest = read_manifest(file.parent_path());
  CHECK(manifest.device == cpu_name());
  manifest.device = "ENIAC";
  std::ofstream(file) << manifest_text(manifest);
  for (config::Override& each : request.overrides) {
    if (each.text == "train.steps=2") each = "train.steps=3";
  }
  const Lines moved = lines_of_run(request);
  CHECK(std::count(moved.begin(), moved.end(),
                   "note: " + cpu_name() + " instead of ENIAC: the run continues up to rounding") ==
        1);
}

// Of the newest checkpoint one byte is another one.
TEST_CASE("training run: where a checkpoint is damaged, the one before is gone on from") {
  const test::TempFolder folder;
  const fs::path directory = folder / "run";
  ResumeRequest request = {.from = "auto", .overrides = tiny_run(folder, directory)};
  request.overrides.push_back("checkpoint.every=2");
  request.overrides.push_back("train.steps=4");
  lines_of_run(request);
  const std::string metrics = read_file(directory / "metrics.jsonl");
  for (const auto& file : fs::directory_iterator(directory / "checkpoints/step-4")) {
    if (file.path().extension() != ".safetensors") continue;
    std::string bytes = read_file(file.path());
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    std::ofstream(file.path(), std::ios::binary) << bytes;
  }
  request.overrides.back() = "train.steps=6";
  const Lines lines = lines_of_run(request);
  CHECK(test::count_lines(lines, "step-4") >= 1);
  CHECK(test::count_lines(lines, "damaged") >= 1);
  CHECK(test::count_lines(lines, "resumed from " + (directory / "checkpoints/step-2").string() +
                                     ": step 2") == 1);
  const Json summary = read_json_file(directory / "metrics.json");
  CHECK(summary.at("steps") == 6);
  CHECK(summary.at("resumed_from") == 2);
  CHECK(read_manifest(directory / "checkpoints/step-6").progress.steps == 6);
}

// Two epochs of eight steps, killed in the middle of each.
TEST_CASE("training run: documents that share sequences resume with the same bits") {
  const test::TempFolder folder;
  std::string texts;
  for (int i = 0; i < 30; ++i) texts += std::string(static_cast<size_t>(1 + i % 6), 'a') + "b\n";
  const std::string train = "data.train=" + folder.write("rows.txt", texts).string();
  const auto request = [&](const fs::path& directory) {
    ResumeRequest out = {.from = "auto", .overrides = tiny_run(folder, directory)};
    out.overrides.insert(out.overrides.end(),
                         {train, "data.pack=documents", "train.batch=3", "train.epochs=2",
                          "train.log_every=1", "checkpoint.every=3", "runtime.monitor_s=0"});
    return out;
  };
  const auto losses = [](const fs::path& directory) {
    std::vector<std::string> out;
    for (const Json& line : test::lines_of(read_file(directory / "metrics.jsonl"))) {
      if (line.contains("loss"))
        out.push_back(line.at("step").dump() + " " + line.at("loss").dump());
    }
    return out;
  };
  const fs::path whole = folder / "whole", killed = folder / "killed";
  lines_of_run(request(whole));
  for (const char* line : {"step 3: checkpoint", "step 12: checkpoint"}) {
    CHECK(
        test::contains(test::error_of([&] { lines_of_run(request(killed), -1, line); }), "killed"));
  }
  CHECK(test::count_lines(lines_of_run(request(killed)), "step-12: step 12") == 1);
  const Json expected = read_json_file(whole / "metrics.json");
  const Json actual = read_json_file(killed / "metrics.json");
  CHECK(actual.at("resumed_from") == 12);
  CHECK(actual.at("samples") == 2 * 23);
  for (const std::string key :
       {"weights_hash", "optimizer_hash", "steps", "samples", "true_tokens"}) {
    CAPTURE(key);
    CHECK(actual.at(key).dump() == expected.at(key).dump());
  }
  CHECK(losses(killed) == losses(whole));
}

TEST_CASE("training run: another batch is another run, unless changes are accepted") {
  const test::TempFolder folder;
  const fs::path directory = folder / "run";
  ResumeRequest request = {.from = "auto", .overrides = tiny_run(folder, directory)};
  request.overrides.insert(request.overrides.end(), {"train.steps=2", "checkpoint.every=2"});
  lines_of_run(request);
  request.from = directory.string();
  request.overrides = {"train.steps=4", "train.batch=4"};
  CHECK(test::contains(test::error_of([&] { lines_of_run(request); }), "train.batch"));
  request.with_changes = true;
  const Lines lines = lines_of_run(request);
  CHECK(test::count_lines(lines, "train.batch: 2 -> 4") == 1);
  CHECK(lines.back() == "\nrun directory: " + directory.string());
}

// What `fsdp launch` has seen is of the last start that came to a step.
TEST_CASE("training run: a start that failed before its first step has its own cause of failure") {
  const std::string hung = "no sign of life for 60 s";
  for (const double seen : {0.0, 1000.0}) {
    CAPTURE(seen);
    const test::TempFolder folder;
    const fs::path directory = folder / "run";
    ResumeRequest request = {.from = "auto", .overrides = tiny_run(folder, directory)};
    request.overrides.insert(request.overrides.end(),
                             {"checkpoint.every=2", "train.schedule.total=4", "train.steps=2"});
    lines_of_run(request);
    fs::remove(directory / "metrics.json");  // as if it had been killed
    std::ofstream(directory / "progress.json")
        << Json{{"seen", seen}, {"step", 2}, {"wall_time_s", 1.0}}.dump();
    leave_end_note(directory, {.time = 2000, .status = 1, .cause = "Input/output error"});
    request.overrides.back() = "train.steps=4";
    const ResumePlan plan = plan_resume(request);
    const TrainingRunOptions options = {
        .local_ranks = 2, .resume = "auto", .say = [](const auto&) {}};
    comm::run_local_ranks(2, [&](comm::Communicator& world) {
      RankContext rank{.world = world,
                       .local_ranks = 2,
                       .before = {.by_parent = 2, .ended = 1500, .status = 137, .cause = hung}};
      CHECK(run_training(options, request, plan, rank) == 0);
    });
    const std::vector<Json> failures = read_failures(directory);
    REQUIRE(failures.size() == 1);
    CHECK(failures[0].at("cause").text() == (seen > 0 ? hung : "Input/output error"));
  }
}

}  // namespace
}  // namespace fsdp::tools
