// A run directory before and after a run goes on in it; texts that fill a batch whatever the
// tokenizer; disks that hold what they have to.
#include "tools/run/run_files.h"

#include <doctest/doctest.h>

#include "core/io/file.h"
#include "tests/support/temp_folder.h"
#include "tools/guides/result_files.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;
using Lines = std::vector<std::string>;

constexpr const char* kSteps =
    "{\"step\":1,\"loss\":3}\n{\"step\":2,\"loss\":2}\n{\"step\":2,\"validation_loss\":2}\n"
    "{\"step\":3,\"loss\":1}\n";

TEST_CASE("run files: a run that could not begin leaves no folder, one with results does") {
  const test::TempFolder folder;
  const fs::path run = folder / "run";
  fs::create_directories(run / "checkpoints");
  for (const char* name :
       {"run_args.json", "config.yaml", "progress.json", "metrics.jsonl", "run.lock"}) {
    folder.write(std::string("run/") + name, "x");
  }
  forget_directory(run);
  CHECK(!fs::exists(run));
  fs::create_directories(run / "checkpoints/step-1");
  forget_directory(run);
  CHECK(fs::exists(run / "checkpoints/step-1"));
}

TEST_CASE("run files: what comes after the checkpoint is cut, the results of an end go") {
  const test::TempFolder folder;
  folder.write("metrics.jsonl", kSteps);
  folder.write("metrics.json", "{}");
  for (const std::string_view result : kTrainerFiles.names) folder.write(std::string(result), "x");
  CHECK(go_on_in_directory(folder.path(), folder.path(), {.steps = 2}, {}).empty());
  CHECK(read_file(folder / "metrics.jsonl") ==
        "{\"step\":1,\"loss\":3}\n{\"step\":2,\"loss\":2}\n");
  CHECK(!fs::exists(folder / "metrics.json"));
  for (const std::string_view result : kTrainerFiles.names) CHECK(!fs::exists(folder / result));
}

TEST_CASE("run files: the end of a log is cut in its place, a line within it by a new file") {
  const test::TempFolder folder;
  const std::string first = "{\"step\":1,\"loss\":3}\n", second = "{\"step\":2,\"loss\":2}\n";
  const auto stays = [&](const std::string& text) {
    folder.write("metrics.jsonl", text);
    fs::remove(folder / "same");
    fs::create_hard_link(folder / "metrics.jsonl", folder / "same");
    go_on_in_directory(folder.path(), folder.path(), {.steps = 2}, {});
    CHECK(read_file(folder / "metrics.jsonl") == first + second);
    return fs::equivalent(folder / "metrics.jsonl", folder / "same");
  };
  CHECK(stays(first + second + "{\"step\":3,\"loss\":1}\n{\"step\":4,"));
  CHECK(stays(first + second));
  CHECK(!stays(first + "hello\n" + second));
}

TEST_CASE("run files: a new directory gets the lines of the run that it begins in") {
  const test::TempFolder before, now;
  before.write("metrics.jsonl", kSteps);
  go_on_in_directory(now.path(), before.path(), {.steps = 2, .validated_at = 2}, {});
  CHECK(read_file(now / "metrics.jsonl") ==
        "{\"step\":1,\"loss\":3}\n{\"step\":2,\"loss\":2}\n{\"step\":2,\"validation_loss\":2}\n");
  CHECK(read_file(before / "metrics.jsonl") == kSteps);
}

TEST_CASE("run files: a run that begins anew keeps the log of what was done before") {
  const test::TempFolder folder;
  for (const char* name : {"metrics.1.jsonl", "metrics.2.jsonl"}) {
    folder.write("metrics.jsonl", kSteps);
    CHECK(go_on_in_directory(folder.path(), folder.path(), {}, {}).empty());
    CHECK(read_file(folder / name) == kSteps);
    CHECK(!fs::exists(folder / "metrics.jsonl"));
  }
}

TEST_CASE("run files: a log that is missing, and lines of somebody else, are told") {
  const test::TempFolder folder;
  const std::string log = (folder / "metrics.jsonl").string();
  CHECK(go_on_in_directory(folder.path(), folder.path(), {.steps = 2}, {}) ==
        Lines{log + ": missing: the log has no lines of the steps up to 2"});
  folder.write("metrics.jsonl", "{\"step\":1,\"loss\":3}\n{\"step\":1}\nhello\n");
  CHECK(go_on_in_directory(folder.path(), folder.path(), {.steps = 2}, {}) ==
        Lines{log + ": 2 lines of no run of this program: left out"});
  CHECK(read_file(folder / "metrics.jsonl") == "{\"step\":1,\"loss\":3}\n");
}

TEST_CASE("run files: the model of an earlier end is named, and stays") {
  const test::TempFolder folder;
  fs::create_directory(folder / "adapter");
  CHECK(go_on_in_directory(folder.path(), folder.path(), {}, {}) ==
        Lines{(folder / "adapter").string() +
              " is that of an earlier end of this run, until this one saves its own"});
  CHECK(fs::exists(folder / "adapter"));
}

TEST_CASE("run files: what a run reads is not what it replaces") {
  const test::TempFolder folder;
  fs::create_directory(folder / "model");
  fs::create_directory(folder / "other");
  const auto error = [&](const std::string& source) {
    return test::error_of([&] { check_source_stays("model.path", source, folder / "model"); });
  };
  CHECK(error("") == "");
  CHECK(error((folder / "other").string()) == "");
  CHECK(error((folder / "missing").string()) == "");
  const std::string same = (folder / "other/../model").string();
  CHECK(test::contains(error(same),
                       "model.path: " + same + ": this run would replace it by its own model"));
}

TEST_CASE("run files: skipped rows are listed, and none of an earlier part are left") {
  const test::TempFolder folder;
  write_skipped_rows(folder.path(), {{.file = "a.jsonl", .line = 17, .reason = "malformed"}});
  CHECK(data::parse_skipped_rows(read_file(folder / "skipped_rows.jsonl")).front().line == 17);
  write_skipped_rows(folder.path(), {});
  CHECK(!fs::exists(folder / "skipped_rows.jsonl"));
  write_skipped_rows(folder.path(), {});
}

TEST_CASE("run files: a text has a batch for certain when it has 64 bytes a token") {
  const test::TempFolder folder;
  config::TrainConfig config;
  config.data.sequence_length = 10;
  config.data.train = {folder.write("text.txt", std::string(64 * 10 * 4, 'a')).string()};
  CHECK(fills_a_batch(config, 4));
  CHECK(!fills_a_batch(config, 5));
  config.data.train.push_back("missing.txt");  // said where it is read
  CHECK(fills_a_batch(config, 4));
  config.data.bad_rows = data::BadRows::kSkip;
  CHECK(!fills_a_batch(config, 4));
}

TEST_CASE("run files: rows that are made up are as many as they are") {
  config::TrainConfig config;
  config.data.format = data::TextFormat::kSynthetic;
  REQUIRE(config.data.synthetic());
  CHECK(fills_a_batch(config, 1000));
  config.data.synthetic_rows = 7;
  CHECK(fills_a_batch(config, 7));
  CHECK(!fills_a_batch(config, 8));
}

TEST_CASE("run files: the disk of what is offloaded") {
  const test::TempFolder folder;
  const std::string here = folder.path().string();
  const auto error = [](const std::string& place, size_t bytes, int ranks) {
    return test::error_of([&] { check_disk(place, bytes, ranks); });
  };
  CHECK(error("/nowhere", 0, 2) == "");
  CHECK(error(here, 1, 2) == "");
  CHECK(error("/nowhere", 1, 2) ==
        "fsdp.offload_folder: /nowhere: expected a folder that is there");
  const std::string full = error(here, size_t{1} << 60, 2);
  CHECK(test::contains(full, "are free, the state of 2 ranks needs 2"));
  CHECK(test::contains(error(here, size_t{1} << 60, 1), "the state of 1 rank needs 1"));
}

}  // namespace
}  // namespace fsdp::tools
