// The keys of checkpoints, under their names and Hugging Face's.
#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"
#include "tools/config/config.h"

namespace fsdp::config {
namespace {

TrainConfig parse(const std::vector<Override>& overrides) {
  return parse_config("", "run.yaml", overrides);
}

std::string refusal(const std::vector<Override>& overrides) {
  return test::error_of([&] { parse(overrides); });
}

TEST_CASE("checkpoints: Hugging Face's names of the keys") {
  const TrainConfig c = parse_config(
      "data: {validation: v.txt}\ntrain: {eval_every: 5}\n"
      "checkpoint: {save_steps: 10, save_total_limit: 3, metric_for_best_model: eval_loss, "
      "load_best_model_at_end: true}\n",
      "run.yaml", {});
  CHECK(c.checkpoint.interval().steps == 10);
  CHECK(!c.checkpoint.interval().epoch);
  CHECK(c.checkpoint.keep == 3);
  CHECK(c.checkpoint.best == BestMetric::kValidationLoss);
  CHECK(c.checkpoint.load_best);
  CHECK(parse({"checkpoint.save_strategy=epoch"}).checkpoint.interval().epoch);
  CHECK(parse({"checkpoint.save_strategy=no"}).checkpoint.interval().steps == 0);
  CHECK(parse({"checkpoint.every=epoch"}).checkpoint.interval().epoch);
}

TEST_CASE("checkpoints: an interval of time, and none that was given") {
  const auto every = [](const std::string& text) {
    return parse({"checkpoint.every=" + text}).checkpoint.interval();
  };
  CHECK(every("90s").seconds == 90);
  CHECK(every("30min").seconds == 1800);
  CHECK(every("2h").seconds == 7200);
  CHECK(every("auto").seconds == 1800);
  CHECK(parse({}).checkpoint.interval().seconds == 1800);
  CHECK(!parse({}).checkpoint.every);
  CHECK(every("0").never());
  for (const char* wrong : {"0s", "-1min", "1.5h", "3 days", "min", "99999999999999h"}) {
    CHECK(test::contains(refusal({std::string("checkpoint.every=") + wrong}), wrong));
  }
  for (const char* text : {"auto", "90s", "30min", "1h", "61min", "7", "0", "epoch"}) {
    const std::string yaml = to_yaml(parse({std::string("checkpoint.every=") + text}));
    CHECK(test::contains(yaml, std::string("every: ") + text + "\n"));
  }
}

TEST_CASE("checkpoints: keys that would do nothing are refused") {
  for (const char* key : {"checkpoint.keep=2", "checkpoint.best=train_loss"}) {
    CHECK(test::contains(refusal({key, "checkpoint.every=0"}),
                         "has no effect without checkpoint.every"));
    CHECK(refusal({key}) == "");
    CHECK(refusal({key, "checkpoint.every=3"}) == "");
    CHECK(refusal({key, "checkpoint.every=epoch"}) == "");
  }
  const std::vector<Override> best = {"checkpoint.every=3", "checkpoint.best=train_loss",
                                      "checkpoint.load_best=true"};
  CHECK(refusal(best) == "");
  auto unsaved = best;
  unsaved.emplace_back("train.save=false");
  CHECK(test::contains(refusal(unsaved), "has no effect with train.save: false"));
}

TEST_CASE("checkpoints: one that is judged by an evaluation comes after one") {
  const std::vector<Override> given = {"data.validation=v.txt", "checkpoint.best=validation_loss",
                                       "train.eval_every=4"};
  const auto with = [&](const char* every) {
    auto all = given;
    all.emplace_back(every);
    return refusal(all);
  };
  CHECK(with("checkpoint.every=8") == "");
  CHECK(test::contains(with("checkpoint.every=6"),
                       "checkpoint.best: validation_loss: expected checkpoint.every to be a "
                       "multiple of train.eval_every, got 6 and 4"));
}

TEST_CASE("epochs: instead of steps, for the length of a run and between evaluations") {
  const TrainConfig c =
      parse({"train.num_train_epochs=3", "train.eval_every=epoch", "data.validation=v.txt",
             "checkpoint.every=epoch", "train.log_every=epoch"});
  const TrainConfig in_steps = c.in_steps(7);
  CHECK(in_steps.train.steps == 21);
  CHECK(in_steps.schedule().total == 21);
  CHECK(in_steps.train.log_every.steps == 7);
  CHECK(in_steps.train.eval_every.steps == 7);
  CHECK(in_steps.checkpoint.interval().steps == 7);
  CHECK(parse_config(to_yaml(c), "again", {}).train.epochs == 3);
  const TrainConfig steps = parse({"train.steps=30", "checkpoint.every=4"});
  CHECK(steps.in_steps(7).train.steps == 30);
  CHECK(steps.in_steps(7).checkpoint.interval().steps == 4);
  CHECK(steps.in_steps(7).train.log_every.steps == 10);
  for (const char* steps : {"train.steps=30", "train.steps=1000"}) {  // also the default's number
    CHECK(test::contains(refusal({"train.epochs=3", steps}),
                         "train.epochs: expected nothing beside train.steps, got 3 and "));
  }
  const auto of_file = [](const std::string& train, const std::vector<Override>& typed) {
    return parse_config("train: {" + train + "}", "file", typed).train;
  };
  CHECK(test::contains(test::error_of([&] { of_file("steps: 1000, epochs: 3", {}); }),
                       "expected nothing beside train.steps, got 3 and 1000 steps (file:1)"));
  // What is typed counts more than the file.
  CHECK(of_file("steps: 30", {"train.epochs=3"}).epochs == 3);
  CHECK(of_file("steps: 30", {"train.epochs=3"}).steps == TrainSection().steps);
  CHECK(of_file("epochs: 3", {"train.steps=30"}).epochs == 0);
  CHECK(of_file("epochs: 3", {"train.steps=30"}).steps == 30);
  CHECK(of_file("epochs: 3", {"train.epochs=0", "train.steps=30"}).steps == 30);
}

}  // namespace
}  // namespace fsdp::config
