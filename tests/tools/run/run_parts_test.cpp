// A run directory before and after a run goes on in it; texts that fill a batch whatever the
// tokenizer; disks that hold what they have to; what keeps a run from going on from a checkpoint,
// each by itself; the lines at its end, and ZeRO's formula.
// Requirements: S2.13.
#include "tools/run/run_parts.h"

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
        Lines{log + ": 2 lines not written by this program: left out"});
  CHECK(read_file(folder / "metrics.jsonl") == "{\"step\":1,\"loss\":3}\n");
}

TEST_CASE("run files: the model of an earlier end is named, and stays") {
  const test::TempFolder folder;
  fs::create_directory(folder / "adapter");
  CHECK(go_on_in_directory(folder.path(), folder.path(), {}, {}) ==
        Lines{(folder / "adapter").string() +
              " was saved at an earlier end of this run and stays until this one saves its own"});
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
  CHECK(error("/nowhere", 1, 2) == "fsdp.offload_folder: /nowhere: expected an existing folder");
  const std::string full = error(here, size_t{1} << 60, 2);
  CHECK(test::contains(full, "are free, the state of 2 ranks needs 2"));
  CHECK(test::contains(error(here, size_t{1} << 60, 1), "the state of 1 rank needs 1"));
}

models::ModelConfig small_model() {
  models::ModelConfig model = models::family_defaults("llama");
  model.vocabulary = 11;
  model.hidden = model.ffn = 8;
  model.layers = model.heads = model.kv_heads = 1;
  model.head_dim = 8;
  return model;
}

// The run of two ranks that left the checkpoint, as it goes on.
ContinuedRun unchanged(const models::ModelConfig& model) {
  const config::StepShape shape = {.batch = 8, .micro_steps = 2, .ranks = 2};
  return {.model = model,
          .shape = shape,
          .before = shape,
          .model_before = models::config_json(model, "")};
}

std::string error_of(const ContinuedRun& run) {
  return test::error_of([&] { check_same_run(run); });
}

TEST_CASE("same run: nothing has changed; another number of ranks alone does not matter") {
  const models::ModelConfig model = small_model();
  ContinuedRun run = unchanged(model);
  CHECK(error_of(run) == "");
  run.shape.ranks = 3;
  CHECK(error_of(run) == "");
}

TEST_CASE("same run: another batch, another model, an order that follows the ranks") {
  const models::ModelConfig model = small_model();
  ContinuedRun batch = unchanged(model);
  batch.shape.batch = 12;
  CHECK(test::contains(error_of(batch), "--set train.batch=8 --set train.micro_steps=auto keeps"));

  models::ModelConfig other = model;
  other.ffn = 9;
  ContinuedRun wider = unchanged(model);
  wider.model_before = models::config_json(other, "");
  CHECK(
      error_of(wider) ==
      "--resume: the model differs from the checkpoint's; --resume-with-changes continues anyway");

  ContinuedRun order = unchanged(model);
  order.order_follows_ranks = true;
  CHECK(error_of(order) == "");
  order.before.ranks = 1;
  CHECK(test::contains(error_of(order), "expected 1 rank as before, got 2;"));
}

TEST_CASE("same run: dropout is keyed by micro-steps, unless rows_per_pass fixes what one holds") {
  models::ModelConfig model = small_model();
  ContinuedRun run = unchanged(model);
  run.shape.micro_steps = 4;
  CHECK(!drops_other_elements(run));  // nothing drops
  for (double models::ModelConfig::*dropout :
       {&models::ModelConfig::embedding_dropout, &models::ModelConfig::attention_dropout,
        &models::ModelConfig::residual_dropout, &models::ModelConfig::mlp_dropout}) {
    model.*dropout = 0.1;
    CHECK(drops_other_elements(run));
    model.*dropout = 0;
  }
  run.adapter_dropout = 0.1;
  CHECK(test::contains(error_of(run), "expected 2 ranks and train.micro_steps as before"));
  run.shape.micro_steps = 2;
  CHECK(!drops_other_elements(run));
  run.shape.ranks = 4;
  CHECK(drops_other_elements(run));
  run.shape.micro_steps = run.before.micro_steps = 1;  // a sequence has one place
  CHECK(!drops_other_elements(run));
  run.shape = {.batch = 8, .rows_per_pass = 2, .micro_steps = 4, .ranks = 1};
  run.before = {.batch = 8, .rows_per_pass = 2, .micro_steps = 2, .ranks = 2};
  CHECK(!drops_other_elements(run));
}

TEST_CASE("run texts: losses, with what there is") {
  TrainTotals totals = {.steps = 3, .recent_losses = {2, 1, 3}};
  CHECK(format_losses(totals, 10, {}) ==
        "loss (nats per token)\n"
        "  training                    2.0000   mean of the last 3 steps\n");
  totals.validation_loss = 1.5;
  CHECK(format_losses(totals, 1, 1.25) ==
        "loss (nats per token)\n"
        "  training                    2.0000   of the last step\n"
        "  validation                  1.5000\n"
        "  bigram entropy              1.2500   validation text by the training text's token "
        "pairs\n");
}

TEST_CASE("run texts: how much of making batches was hidden") {
  CHECK(format_batch_times({.made_s = 1, .waited_s = 1}, 1) == "");
  CHECK(format_batch_times({.made_s = 0.5, .waited_s = 0.125}, 6) ==
        "making batches: 100.000 ms a step, 75.0 % of it hidden behind the steps\n");
  // Nothing was made; a step waited longer than the batch took.
  CHECK(format_batch_times({}, 2) ==
        "making batches: 0.000 ms a step, 100.0 % of it hidden behind the steps\n");
  CHECK(format_batch_times({.made_s = 1, .waited_s = 2}, 2) ==
        "making batches: 1000.000 ms a step, 0.0 % of it hidden behind the steps\n");
}

// Table 1 of the ZeRO paper: 7.5B parameters on 64 GPUs, in GB of 1e9 bytes.
TEST_CASE("run texts: ZeRO's published states") {
  using enum comm::Strategy;
  const auto gb = [](comm::Strategy strategy) {
    return static_cast<double>(states_by_formula(strategy, 64, 7'500'000'000)) / 1e9;
  };
  CHECK(gb(kNoShard) == doctest::Approx(120));
  CHECK(gb(kShardOptimizer) == doctest::Approx(31.4).epsilon(0.002));
  CHECK(gb(kShardGradOp) == doctest::Approx(16.6).epsilon(0.003));
  CHECK(gb(kFullShard) == doctest::Approx(1.88).epsilon(0.003));
  CHECK(gb(kHybridShardZero2) == gb(kShardGradOp));
  CHECK(gb(kHybridShard) == gb(kFullShard));
}

TEST_CASE("run texts: shard groups that lie on several hosts are said, with the ranks of hosts") {
  CHECK(spread_groups({"a", "a", "b", "b"}, 2) == "");
  CHECK(spread_groups({"a", "a", "b", "b"}, 4) == "");  // no replicas
  CHECK(spread_groups({"a", "a", "a", "b"}, 2) ==
        "fsdp.shard_size 2: 1 of 2 shard groups are on several hosts, the first has ranks 2 to 3: "
        "what it gathers crosses the network; ranks: 3 on a, 1 on b");
  CHECK(spread_groups({"a", "b", "a", "b"}, 2)
            .starts_with("fsdp.shard_size 2: 2 of 2 shard groups are on several hosts, the first "
                         "has ranks 0 to 1: "));
}

}  // namespace
}  // namespace fsdp::tools
