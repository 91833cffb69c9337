// Lines in the form of other programs, against lines that these programs have printed.
// Requirements: S0.9, S1.6, S4.8, S4.15, S4.16.
#include "tools/guides/log_lines.h"

#include <cmath>

#include <doctest/doctest.h>

#include "core/io/json.h"
#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

constexpr double kGiB = 1 << 30;

// fairseq's documentation of its fully sharded training prints for the first update:
// {"epoch": 1, "update": 0.0, "loss": "16.475", "ppl": "91120.8", "wps": "0", "ups": "0",
//  "wpb": "16384", "bsz": "8", "num_updates": "1", "lr": "2e-05", "gnorm": "20.751",
//  "loss_scale": "4", "train_wall": "99", "gb_free": "9.3", "wall": "105"}
TEST_CASE("log lines: fairseq's first update") {
  const StepMetrics step = {.totals = {.steps = 1, .wall_time_s = 105.2, .step_time_s = 99},
                            .loss = 1,  // of one step: the window's mean counts
                            .grad_norm = 20.7512,
                            .learning_rate = 0,
                            .next_learning_rate = 2e-5,
                            .loss_scale = 4,
                            .epoch = 0.0002,
                            .peak_memory_bytes = static_cast<size_t>(22.7 * kGiB)};
  const LogWindow window = {
      .steps = 1, .tokens = 16384, .samples = 8, .seconds = 99e9, .loss_sum = std::log(91120.8)};
  const std::string line = kFairseqLines.step(
      step, window, {.memory_bytes = static_cast<size_t>(32 * kGiB), .scales_loss = true});
  const Json json = Json::parse(line);
  CHECK(json.at("epoch").get<int64_t>() == 1);
  CHECK(json.at("update").get<double>() == 0);
  for (const auto& [key, text] : {std::pair{"loss", "16.475"},
                                  {"ppl", "91120.8"},
                                  {"wps", "0"},
                                  {"ups", "0"},
                                  {"wpb", "16384"},
                                  {"bsz", "8"},
                                  {"num_updates", "1"},
                                  {"lr", "2e-05"},
                                  {"gnorm", "20.751"},
                                  {"loss_scale", "4"},
                                  {"train_wall", "99"},
                                  {"gb_free", "9.3"},
                                  {"wall", "105"}}) {
    CAPTURE(key);
    CHECK(json.at(key).text() == text);
  }
}

TEST_CASE("log lines: fairseq's numbers of several steps, epochs, overflows") {
  const StepMetrics step = {.totals = {.steps = 25, .skipped = 2}, .loss_scale = 1, .epoch = 2.5};
  const LogWindow window = {
      .steps = 5, .tokens = 500, .samples = 20, .seconds = 10, .loss_sum = 5 * 2 * M_LN2};
  LogContext context = {.steps_per_epoch = 10, .scales_loss = true};
  Json json = Json::parse(kFairseqLines.step(step, window, context));
  CHECK(json.at("epoch").get<int64_t>() == 3);
  CHECK(json.at("update").get<double>() == 2.5);
  CHECK(json.at("loss").text() == "2");
  CHECK(json.at("ppl").text() == "4");
  CHECK(json.at("wps").text() == "50");
  CHECK(json.at("ups").text() == "0.5");
  CHECK(json.at("wpb").text() == "100");
  CHECK(json.at("bsz").text() == "4");
  CHECK(json.at("num_updates").text() == "23");
  CHECK(json.at("loss_scale").text() == "1");  // fairseq has the key with --fp16 alone
  CHECK(!json.contains("gb_free"));
  context.scales_loss = false;
  json = Json::parse(kFairseqLines.step(step, window, context));
  CHECK(!json.contains("loss_scale"));
  CHECK(kFairseqLines.overflow(2) ==
        "NOTE: gradient overflow detected, ignoring gradient, setting loss scale to: 2");
  CHECK((kTrainerLines.overflow == nullptr));
}

TEST_CASE("log lines: fairseq's validation and end") {
  const EvaluationMetrics metrics = {.step = 10,
                                     .loss = 3 * M_LN2,
                                     .best_loss = 2.5 * M_LN2,
                                     .runtime_s = 2,
                                     .tokens = 600,
                                     .sequences = 6,
                                     .batches = 3};
  const Json valid = Json::parse(kFairseqLines.evaluation(metrics, 1, {}));
  for (const auto& [key, text] : {std::pair{"valid_loss", "3"},
                                  {"valid_ppl", "8"},
                                  {"valid_wps", "300"},
                                  {"valid_wpb", "200"},
                                  {"valid_bsz", "2"},
                                  {"valid_num_updates", "9"},
                                  {"valid_best_loss", "2.5"}}) {
    CAPTURE(key);
    CHECK(valid.at(key).text() == text);
  }
  const Json end = Json::parse(kFairseqLines.end({.totals = {.steps = 10,
                                                             .true_tokens = 1000,
                                                             .wall_time_s = 30,
                                                             .step_time_s = 20,
                                                             .loss_sum = 10 * 4 * M_LN2}},
                                                 {}));
  CHECK(end.at("train_loss").text() == "4");
  CHECK(end.at("train_wps").text() == "50");
  CHECK(end.at("train_wall").text() == "30");
}

// transformers 4.57.1 has printed the like of these.
TEST_CASE("log lines: transformers' dicts") {
  const LogWindow window = {.steps = 2, .loss_sum = 2 * 4.89504};
  CHECK(kTrainerLines.step({.totals = {.steps = 500},
                            .grad_norm = 81.46943664550781,
                            .learning_rate = 1e-5,
                            .epoch = 4},
                           window, {}) ==
        "{'loss': 4.895, 'grad_norm': 81.46943664550781, 'learning_rate': 1e-05, 'epoch': 4.0}");
  CHECK(kTrainerLines.step({.totals = {.steps = 1}, .grad_norm = NAN, .learning_rate = 0}, window,
                           {}) == "{'loss': 4.895, 'grad_norm': nan, 'learning_rate': 0.0}");
  CHECK(kTrainerLines.evaluation({.epoch = 1.0,
                                  .loss = 9.937559127807617,
                                  .runtime_s = 3.73956,
                                  .sequences = 100,
                                  .batches = 100},
                                 0, {}) ==
        "{'eval_loss': 9.937559127807617, 'eval_runtime': 3.7396, 'eval_samples_per_second': "
        "26.741, 'eval_steps_per_second': 26.741, 'epoch': 1.0}");
  CHECK(kTrainerLines.end({.totals = {.steps = 625,
                                      .samples = 2500,
                                      .wall_time_s = 332.5,
                                      .loss_sum = 625 * 3.98686},
                           .epoch = 5.0},
                          {}) ==
        "{'train_runtime': 332.5, 'train_samples_per_second': 7.519, 'train_steps_per_second': "
        "1.88, 'train_loss': 3.98686, 'epoch': 5.0}");
}

TEST_CASE("log lines: the chess guide's") {
  CHECK(kChessLines.step({.totals = {.steps = 3}, .loss = 1.2345}, {.steps = 2, .seconds = 5},
                         {.total_steps = 40}) == "(3/40) loss=1.23 (2.50 s/step)");
  CHECK((kChessLines.end == nullptr));
}

// transformers: logging_first_step is false by default, and DefaultFlowControlCallback logs where
// global_step % logging_steps is 0. fairseq: JsonProgressBar.log, where step % log_interval is 0.
TEST_CASE("log lines: where other programs print one") {
  for (const LogLines& lines : {kTrainerLines, kFairseqLines}) {
    CHECK(!lines.prints_step(1, 2));
    CHECK(lines.prints_step(2, 2));
    CHECK(!lines.prints_step(5, 2));
    CHECK(lines.prints_step(1, 1));
  }
  CHECK(kChessLines.prints_step(1, 2));
  LogWindow window = {.steps = 1, .tokens = 2, .samples = 3, .seconds = 4, .loss_sum = 5};
  window.add({.steps = 10, .tokens = 20, .samples = 30, .seconds = 40, .loss_sum = 50});
  CHECK(window.steps == 11);
  CHECK(window.tokens == 22);
  CHECK(window.samples == 33);
  CHECK(window.seconds == 44);
  CHECK(window.loss_sum == 55);
}

}  // namespace
}  // namespace fsdp::tools
