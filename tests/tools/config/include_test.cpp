// `include` in a configuration file: what is read first, whose value counts, mistakes.
// Requirements: S2.1.
#include <doctest/doctest.h>

#include "core/error.h"
#include "tests/support/temp_folder.h"
#include "tools/config/config.h"

namespace fsdp::config {
namespace {

struct Files {
  TrainConfig read(const std::string& yaml, const std::vector<Override>& overrides = {}) const {
    return read_config(folder.write("run.yaml", yaml), overrides);
  }
  std::string refusal(const std::string& yaml) const {
    return test::error_of([&] { read(yaml); });
  }
  std::string path(const std::string& name) const { return (folder / name).string(); }

  test::TempFolder folder;
};

TEST_CASE("include: the file counts more than those that it includes, the last of these most") {
  const Files files;
  files.folder.write("a.yaml", "train: {lr: 1, clip_norm: 1, log_every: 1}\nruntime: {name: a}\n");
  files.folder.write("b.yaml", "train: {lr: 2, clip_norm: 2}\n");
  const TrainConfig c = files.read("include: [a.yaml, b.yaml]\ntrain:\n  lr: 3\n");
  CHECK(c.train.lr == 3);
  CHECK(c.train.clip_norm == 2);
  CHECK(c.train.log_every.steps == 1);
  CHECK(c.runtime.name == "a");
  CHECK(c.places.at("train.lr") == files.path("run.yaml") + ":3");
  CHECK(c.places.at("train.clip_norm") == files.path("b.yaml") + ":1");
  CHECK(files.read("include: a.yaml\n", {"train.lr=4"}).train.lr == 4);
}

TEST_CASE("include: beside the file that has it, and so on") {
  const Files files;
  std::filesystem::create_directory(files.folder / "parts");
  files.folder.write("parts/a.yaml", "include: b.yaml\ntrain: {lr: 1}\n");
  files.folder.write("parts/b.yaml", "train: {seed: 7}\n");
  const TrainConfig c = files.read("include: parts/a.yaml\n");
  CHECK(c.train.lr == 1);
  CHECK(c.train.seed == 7);
}

TEST_CASE("include: steps take the place of epochs, and the other way round") {
  const Files files;
  files.folder.write("steps.yaml", "train: {steps: 5}\n");
  files.folder.write("epochs.yaml", "train: {epochs: 2}\n");
  TrainConfig c = files.read("include: steps.yaml\ntrain: {epochs: 3}\n");
  CHECK(c.train.epochs == 3);
  CHECK(c.train.steps == TrainSection().steps);
  c = files.read("include: epochs.yaml\ntrain: {steps: 6}\n");
  CHECK(c.train.epochs == 0);
  CHECK(c.train.steps == 6);
  CHECK(files.read("include: epochs.yaml\n", {"train.steps=4"}).train.epochs == 0);
  CHECK(test::contains(files.refusal("train: {steps: 5, epochs: 2}\n"),
                       "expected nothing beside train.steps, got 2 and 5 steps"));
}

TEST_CASE("include: one note says which of steps and epochs counts, and instead of what") {
  const Files files;
  files.folder.write("steps.yaml", "train: {steps: 5}\n");
  files.folder.write("epochs.yaml", "include: steps.yaml\ntrain: {epochs: 2}\n");
  const auto note = [&](const std::string& yaml, const std::vector<Override>& overrides = {}) {
    return files.read(yaml, overrides).length_note;
  };
  const std::string run = files.path("run.yaml"), steps = files.path("steps.yaml"),
                    epochs = files.path("epochs.yaml");
  CHECK(note("include: steps.yaml\n") == "");
  CHECK(note("train: {lr: 1}\n", {"train.epochs=2"}) == "");  // the default was nobody's wish
  CHECK(note("train: {epochs: 2}\n", {"train.epochs=3"}) == "");
  CHECK(note("train: {steps: 5, epochs: 0}\n", {"train.steps=6"}) == "");
  CHECK(note("include: steps.yaml\n", {"train.epochs=3"}) ==
        "train.epochs: 3 (--set train.epochs=3) counts instead of train.steps: 5 (" + steps +
            ":1)");
  CHECK(note("train: {epochs: 2}\n", {Override("train.steps=6", "--steps 6")}) ==
        "train.steps: 6 (--steps 6) counts instead of train.epochs: 2 (" + run + ":1)");
  CHECK(note("include: epochs.yaml\n") ==
        "train.epochs: 2 (" + epochs + ":2) counts instead of train.steps: 5 (" + steps + ":1)");
  // The last replacement is the one that matters, with the value that counts.
  CHECK(note("include: epochs.yaml\n", {"train.epochs=4"}) ==
        "train.epochs: 4 (--set train.epochs=4) counts instead of train.steps: 5 (" + steps +
            ":1)");
  CHECK(note("include: epochs.yaml\n", {"train.steps=6"}) ==
        "train.steps: 6 (--set train.steps=6) counts instead of train.epochs: 2 (" + epochs +
            ":2)");
  CHECK(note("include: epochs.yaml\n", {"train.epochs=0"}) == "");
}

TEST_CASE("include: mistakes") {
  const Files files;
  files.folder.write("a.yaml", "train: {lr: 1}\ntrian: {}\n");
  CHECK(files.refusal("include: a.yaml\n")
            .starts_with(files.path("a.yaml") + ":2: unknown key \"trian\""));
  CHECK(files.refusal("include: b.yaml\n") ==
        files.path("run.yaml") + ": include: " + files.path("b.yaml") +
            ": no such file (looked for beside " + files.path("run.yaml") + ")");
  files.folder.write("c.yaml", "include: run.yaml\n");
  CHECK(files.refusal("include: c.yaml\n") ==
        files.path("c.yaml") + ": include: " + files.path("run.yaml") + " includes itself");
  CHECK(files.refusal("include: {a: b}\n") ==
        files.path("run.yaml") + ":1: include: expected a file or a list of files, got a section");
  CHECK(
      test::contains(files.refusal("train: {include: a.yaml}\n"), "unknown key \"train.include\""));
}

}  // namespace
}  // namespace fsdp::config
