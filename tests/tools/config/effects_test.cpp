// Keys that lose their effect: refused where one layer says both, a note where another layer does.
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
  std::string refusal(const std::string& yaml, const std::vector<Override>& overrides = {}) const {
    return test::error_of([&] { read(yaml, overrides); });
  }
  std::string path(const std::string& name) const { return (folder / name).string(); }

  test::TempFolder folder;
};

TEST_CASE(
    "--set takes the effect of a file's keys away: one note, and the keys have their default") {
  const Files files;
  const std::string yaml = "fsdp:\n  forward_prefetch: false\n  backward_prefetch: post\n";
  CHECK(files.read(yaml).notes.empty());
  const TrainConfig c = files.read(yaml, {"fsdp.strategy=no_shard"});
  CHECK(c.fsdp.forward_prefetch);
  CHECK(c.fsdp.options.backward_prefetch == comm::BackwardPrefetch::kPre);
  CHECK(c.left_out == std::vector<std::string>{"fsdp.forward_prefetch", "fsdp.backward_prefetch"});
  REQUIRE(c.notes.size() == 1);
  CHECK(c.notes[0] ==
        "no effect with strategy: no_shard (--set fsdp.strategy=no_shard), and left out: "
        "fsdp.forward_prefetch: false (" +
            files.path("run.yaml") + ":2), fsdp.backward_prefetch: post (" +
            files.path("run.yaml") + ":3)");
  // What a run writes of it is read again without a note.
  CHECK(parse_config(to_yaml(c), "", {}).notes.empty());
}

TEST_CASE("what one layer says in contradiction to itself is refused") {
  const Files files;
  CHECK(files.refusal("fsdp: {strategy: no_shard, forward_prefetch: false}\n") ==
        files.path("run.yaml") +
            ":1: fsdp.forward_prefetch: false has no effect with strategy: no_shard");
  CHECK(files.refusal("", {"fsdp.strategy=no_shard", "fsdp.forward_prefetch=false"}) ==
        "--set fsdp.forward_prefetch=false: fsdp.forward_prefetch: false has no effect with "
        "strategy: no_shard");
  // What is typed is on top of a file that is known.
  CHECK(files.refusal("fsdp: {strategy: no_shard}\n", {"fsdp.forward_prefetch=false"}) ==
        "--set fsdp.forward_prefetch=false: fsdp.forward_prefetch: false has no effect with "
        "strategy: no_shard");
  CHECK(files.refusal("checkpoint: {best: validation_loss, every: 5}\n") ==
        files.path("run.yaml") +
            ":1: checkpoint.best: validation_loss has no effect without train.eval_every");
}

TEST_CASE("attention's order: not without cuDNN, and no hashes that a replay could compare") {
  const Files files;
  const std::string yaml = "train: {dtype: bf16, attention_deterministic: false}\n";
  CHECK(files.refusal(yaml) == "");
  const std::string key = ":1: train.attention_deterministic: false has no effect with ";
  for (const char* none : {"backend: cpu", "attention: own"}) {
    CHECK(files.refusal(yaml + "runtime: {" + none + "}\n") ==
          files.path("run.yaml") + key + "runtime." + none);
  }
  CHECK(files.refusal(yaml + "checkpoint: {every: 5, unit_hashes: true}\n") ==
        files.path("run.yaml") +
            ":2: checkpoint.unit_hashes: true has no effect with "
            "train.attention_deterministic: false");
}

TEST_CASE("files that are included take each other's effects, in either order") {
  const Files files;
  files.folder.write("ddp.yaml", "fsdp: {strategy: no_shard}\n");
  files.folder.write("prefetch.yaml", "fsdp: {forward_prefetch: false}\n");
  const std::string prefetch = files.path("prefetch.yaml") + ":1";
  const auto notes = [&](const std::string& yaml) { return files.read(yaml).notes; };
  CHECK(notes("include: [prefetch.yaml, ddp.yaml]\n") ==
        std::vector<std::string>{"no effect with strategy: no_shard (" + files.path("ddp.yaml") +
                                 "), and left out: fsdp.forward_prefetch: false (" + prefetch +
                                 ")"});
  CHECK(notes("include: [ddp.yaml, prefetch.yaml]\n") ==
        std::vector<std::string>{"no effect with strategy: no_shard, and left out: "
                                 "fsdp.forward_prefetch: false (" +
                                 prefetch + ")"});
  // Given back by a layer above.
  CHECK(notes("include: [prefetch.yaml, ddp.yaml]\nfsdp: {strategy: full_shard}\n").empty());
}

TEST_CASE("a key that has its effect from one layer, and loses it by another") {
  const Files files;
  files.folder.write("terms.yaml", "lora: {alpha: 16}\n");
  files.folder.write("rank.yaml", "lora: {r: 8}\n");
  const std::string yaml = "include: [terms.yaml, rank.yaml]\n";
  CHECK(files.read(yaml).notes.empty());
  CHECK(files.read(yaml, {"lora.r=0"}).notes ==
        std::vector<std::string>{"no effect without lora.r (--set lora.r=0), and left out: "
                                 "lora.alpha: 16 (" +
                                 files.path("terms.yaml") + ":1)"});
  files.folder.write("groups.yaml", "fsdp: {shard_size: 2}\n");
  const TrainConfig c = files.read("include: groups.yaml\nfsdp: {strategy: hybrid_shard}\n",
                                   {"fsdp.strategy=no_shard"});
  CHECK(c.left_out == std::vector<std::string>{"fsdp.shard_size"});
  CHECK(files.refusal("include: terms.yaml\n") ==
        files.path("terms.yaml") + ":1: lora.alpha: 16 has no effect without lora.r");
}

TEST_CASE("a key that is left out may be what another key needs") {
  const Files files;
  const TrainConfig c = files.read(
      "fsdp: {forward_prefetch: true, prefetch_depth: 2}\n"
      "checkpoint: {every: 4, best: train_loss, load_best: true}\n",
      {"fsdp.strategy=no_shard", "checkpoint.every=0"});
  CHECK(c.fsdp.prefetch_depth == 1);
  CHECK(c.checkpoint.best == BestMetric::kNone);
  CHECK(!c.checkpoint.load_best);
}

TEST_CASE("a model of another layer takes the place of the sizes below it; its own count") {
  const Files files;
  const std::string yaml = "model: {model_type: llama, hidden_size: 64, layers: 2, dropout: 0.5}\n";
  const std::string place = files.path("run.yaml") + ":1";
  TrainConfig c = files.read(yaml, {"model.path=folder", "model.layers=3"});
  CHECK(c.model.model_type.empty());
  CHECK(c.model.hidden_size == 0);
  CHECK(c.model.layers == 3);
  CHECK(c.model.dropout == 0.5);
  CHECK(c.notes ==
        std::vector<std::string>{"model.path (--set model.path=folder) takes the place of "
                                 "model.model_type (" +
                                 place + "), model.hidden_size (" + place + ")"});
  c = files.read("model: {path: folder}\n", {"model.preset=gpt2-124m"});
  CHECK(c.model.path.empty());
  CHECK(c.model.preset == "gpt2-124m");
  // One layer says both: sizes override a preset's.
  c = files.read("model: {preset: gpt2-124m, layers: 2}\n");
  CHECK(c.model.layers == 2);
  CHECK(c.notes.empty());
  CHECK(files.read(yaml, {"model.path="}).model.hidden_size == 64);
}

TEST_CASE("layers of overrides, as a sweep has them") {
  const Files files;
  const std::vector<Override> grid = {
      {"fsdp.strategy=no_shard", "sweep.yaml:4: fsdp.strategy=no_shard", 1},
      {"fsdp.shard_size=2", "sweep.yaml:5: fsdp.shard_size=2", 2}};
  const TrainConfig c = files.read("", grid);
  CHECK(c.fsdp.shard_size == 0);
  REQUIRE(c.notes.size() == 1);
  CHECK(c.notes[0].ends_with("left out: fsdp.shard_size: 2 (sweep.yaml:5: fsdp.shard_size=2)"));
}

}  // namespace
}  // namespace fsdp::config
