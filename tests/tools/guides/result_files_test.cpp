// The files of transformers' Trainer: names and keys as it wrote them, values of a log by hand.
// Requirements: S1.6, S1.22, S2.14.
#include "tools/guides/result_files.h"

#include <algorithm>
#include <cmath>

#include <doctest/doctest.h>

#include "core/io/file.h"
#include "core/io/json.h"
#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

std::vector<std::string> keys_of(const Json& object) {
  std::vector<std::string> keys;
  for (const auto& [name, value] : object.items()) keys.push_back(name);
  std::sort(keys.begin(), keys.end());
  return keys;
}

RunSummary summary_of_two_epochs() {
  RunSummary s;
  s.totals.steps = 4;
  s.totals.samples = 30;
  s.epochs = 2;
  s.totals.wall_time_s = 6;
  s.totals.loss_sum = 4 * 2.5;
  s.best_step = 2;
  s.totals.best_validation_loss = 1.5;
  return s;
}

void write_log(const std::filesystem::path& folder) {
  MetricsLog log(folder / "metrics.jsonl");
  log.step({.totals = {.steps = 1}, .loss = 4, .grad_norm = 3, .learning_rate = 0.5, .epoch = 0.5});
  log.evaluation({.step = 2,
                  .epoch = 1,
                  .loss = 1.5,
                  .best_loss = 1.5,
                  .runtime_s = 2,
                  .sequences = 10,
                  .batches = 3});
  log.step({.totals = {.steps = 3}, .loss = std::nan(""), .learning_rate = 0.25, .epoch = 1.5});
  log.evaluation({.step = 4,
                  .epoch = 2,
                  .loss = 30,
                  .best_loss = 1.5,
                  .runtime_s = 4,
                  .sequences = 10,
                  .batches = 3});
}

TEST_CASE("result files: what transformers' Trainer calls them") {
  const test::TempFolder folder;
  write_log(folder.path());
  kTrainerFiles.write(folder.path(), summary_of_two_epochs(),
                      {.steps = 4, .epochs = 2, .log_every = 2, .best_checkpoint = "step-2"});

  const Json train = read_json_file(folder / "train_results.json");
  CHECK(keys_of(train) == std::vector<std::string>{"epoch", "train_loss", "train_runtime",
                                                   "train_samples_per_second",
                                                   "train_steps_per_second"});
  CHECK(train.at("train_loss") == 2.5);
  CHECK(train.at("train_samples_per_second") == 5);
  // Samples a second times seconds: the samples of all epochs.
  CHECK(train.at("train_samples_per_second").get<double>() * 6 == doctest::Approx(30));

  const Json eval = read_json_file(folder / "eval_results.json");  // of the last one
  CHECK(keys_of(eval) == std::vector<std::string>{"epoch", "eval_loss", "eval_runtime",
                                                  "eval_samples_per_second",
                                                  "eval_steps_per_second", "perplexity"});
  CHECK(eval.at("eval_loss") == 30);
  CHECK(eval.at("eval_samples_per_second") == 2.5);
  CHECK(eval.at("eval_steps_per_second") == 0.75);
  CHECK(eval.at("perplexity").get<double>() == doctest::Approx(std::exp(20.0)));

  Json both = train;
  both.update(eval);
  both.update(callback_metrics(summary_of_two_epochs()));
  CHECK(read_json_file(folder / "all_results.json") == both);
}

TEST_CASE("result files: the state of the trainer") {
  const test::TempFolder folder;
  write_log(folder.path());
  kTrainerFiles.write(folder.path(), summary_of_two_epochs(),
                      {.steps = 4, .epochs = 2, .log_every = 2, .best_checkpoint = "step-2"});
  const Json state = read_json_file(folder / "trainer_state.json");
  CHECK(state.at("global_step") == 4);
  CHECK(state.at("max_steps") == 4);
  CHECK(state.at("num_train_epochs") == 2);
  CHECK(state.at("best_metric") == 1.5);
  CHECK(state.at("best_model_checkpoint") == "step-2");
  const Json& history = state.at("log_history");
  REQUIRE(history.size() == 5);
  for (const char* key : {"epoch", "step", "train_loss", "train_runtime",
                          "train_samples_per_second", "train_steps_per_second"}) {
    CHECK(history[4].contains(key));
  }
  CHECK(history[0] ==
        Json({{"epoch", 0.5}, {"grad_norm", 3}, {"learning_rate", 0.5}, {"loss", 4}, {"step", 1}}));
  CHECK(history[1].at("eval_loss") == 1.5);
  CHECK(history[1].at("step") == 2);
  CHECK(history[2].at("loss").is_null());
}

TEST_CASE("result files: the table has a row for each line, empty where there is no number") {
  const test::TempFolder folder;
  write_log(folder.path());
  kTrainerFiles.write(folder.path(), summary_of_two_epochs(), {});
  const std::string table = read_file(folder / "metrics.csv");
  CHECK(std::count(table.begin(), table.end(), '\n') == 5);
  CHECK(table.starts_with("step,epoch,loss,"));
  CHECK(test::contains(table, "\n1,0.5,4.0,3.0,0.5,"));
  CHECK(test::contains(table, "\n3,1.5,,"));
  CHECK(test::contains(table, ",1.5,1.5,2.0\n"));
}

TEST_CASE("result files: a run without evaluation has no results of one") {
  const test::TempFolder folder;
  MetricsLog(folder / "metrics.jsonl").step({.totals = {.steps = 1}, .loss = 4});
  kTrainerFiles.write(folder.path(), {}, {});
  CHECK_FALSE(std::filesystem::exists(folder / "eval_results.json"));
  CHECK_FALSE(read_json_file(folder / "train_results.json").contains("train_steps_per_second"));
  std::filesystem::remove(folder / "metrics.jsonl");
  kTrainerFiles.write(folder.path(), summary_of_two_epochs(), {});
  CHECK(read_json_file(folder / "trainer_state.json").at("log_history").size() == 1);
  CHECK(perplexity_of(1) == doctest::Approx(std::exp(1.0)));
}

}  // namespace
}  // namespace fsdp::tools
