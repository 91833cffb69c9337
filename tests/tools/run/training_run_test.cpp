// A whole run on ranks as threads: what it says, and that it is over when it has done its steps.
// Checkpoints, models and metrics of runs: tests/e2e.
// Requirements: S2.13, S4.3.
#include "tools/run/training_run.h"

#include <fstream>
#include <mutex>

#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "core/io/json.h"
#include "tests/support/temp_folder.h"
#include "tools/checkpoint/manifest.h"
#include "tools/report/device_snapshot.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;
using Lines = std::vector<std::string>;

// Of rank `late` the backward takes 50 ms longer; -1: of none.
Lines lines_of_run(const ResumeRequest& request, int late = -1) {
  const ResumePlan plan = plan_resume(request);
  Lines lines;
  std::mutex mutex;  // each rank says a line when it starts
  const TrainingRunOptions options = {
      .local_ranks = 2, .resume = request.from, .say = [&](const std::string& line) {
        const std::lock_guard lock(mutex);
        lines.push_back(line);
      }};
  comm::run_local_ranks(2, [&](comm::Communicator& world) {
    RankContext rank{.world = world, .local_ranks = 2};
    if (world.rank() == late) {
      rank.backend.cpu.delay = [](const std::string&, std::string_view task) {
        return task == "embedding_backward" ? 50'000 : 0;  // once a step
      };
    }
    CHECK(run_training(options, request, plan, rank) == 0);
  });
  return lines;
}

std::vector<config::Override> tiny_run(const test::TempFolder& folder, const fs::path& directory) {
  return {"model.model_type=llama",
          "model.hidden_size=16",
          "model.layers=1",
          "model.heads=2",
          "data.sequence_length=8",
          "train.batch=2",
          "data.train=" + folder.write("text.txt", std::string(99, 'a')).string(),
          "data.cache_dir=" + (folder / "tokens").string(),
          "runtime.run_dir=" + directory.string()};
}

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
  const auto count = [&](const std::string& part) {
    return std::count_if(first.begin(), first.end(),
                         [&](const std::string& line) { return test::contains(line, part); });
  };
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
                   "note: " + cpu_name() + " instead of ENIAC: the run goes on up to rounding") ==
        1);
}

}  // namespace
}  // namespace fsdp::tools
