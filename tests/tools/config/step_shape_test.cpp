// Rows, passes and micro-steps of a step, from what is given of them and the number of ranks.
// Requirements: S0.5.
#include "tools/config/step_shape.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp::config {
namespace {

struct Given {
  std::string batch, rows, micro_steps;  // "": not given
};

TrainConfig config_of(const Given& given) {
  std::string yaml = "train:\n  steps: 1\n";
  if (!given.batch.empty()) yaml += "  batch: " + given.batch + "\n";
  if (!given.rows.empty()) yaml += "  per_device_train_batch_size: " + given.rows + "\n";
  if (!given.micro_steps.empty()) yaml += "  micro_steps: " + given.micro_steps + "\n";
  return parse_config(yaml, "x.yaml", {});
}

// "batch rows_per_pass micro_steps"
std::string shape(const Given& given, int ranks) {
  const StepShape s = step_shape(config_of(given), ranks);
  return fmt::format("{} {} {}", s.batch, s.rows_per_pass, s.micro_steps);
}

std::string refusal(const Given& given, int ranks) {
  return test::error_of([&] { shape(given, ranks); });
}

TEST_CASE("step shape: without rows_per_pass, what is given or the defaults") {
  CHECK(shape({}, 4) == "8 0 1");
  CHECK(shape({"12", "", "3"}, 2) == "12 0 3");
  CHECK(step_shape(config_of({"12", "", "3"}), 2).text() ==
        "effective batch 12 = 2 rows x 2 ranks x 3 micro-steps");
  CHECK(step_shape(config_of({}), 1).text() ==
        "effective batch 8 = 8 rows x 1 rank x 1 micro-step");
  CHECK(step_shape(config_of({}), 3).text() ==
        "effective batch 8 = at most 3 rows x 3 ranks x 1 micro-step");
}

TEST_CASE("step shape: micro-steps follow from the batch and the ranks") {
  CHECK(shape({"8", "4", ""}, 2) == "8 4 1");
  CHECK(shape({"64", "1", ""}, 4) == "64 1 16");
  CHECK(shape({"64", "1", "auto"}, 6) == "64 1 11");
  CHECK(shape({"7", "2", ""}, 3) == "7 2 2");
  CHECK(step_shape(config_of({"64", "1", ""}), 4).text() ==
        "effective batch 64 = 1 row x 4 ranks x 16 micro-steps");
  CHECK(step_shape(config_of({"64", "1", ""}), 6).text() ==
        "effective batch 64 = 64 passes of 1 row on 6 ranks x 11 micro-steps; 2 ranks without a "
        "pass in the last one");
  CHECK(refusal({"8", "4", ""}, 4) ==
        "x.yaml:4: train.rows_per_pass: 4 rows of train.batch 8 make 2 passes, fewer than 4 ranks: "
        "each rank needs one");
}

TEST_CASE("step shape: the batch follows from the ranks, as Hugging Face's does") {
  CHECK(shape({"", "4", "2"}, 2) == "16 4 2");
  CHECK(shape({"", "4", "2"}, 8) == "64 4 2");
  CHECK(shape({"", "4", ""}, 3) == "12 4 1");
  CHECK(test::contains(refusal({"", "2000000000", "2"}, 2), "x.yaml:3: train.rows_per_pass: "));
}

TEST_CASE("step shape: three that are given must agree") {
  CHECK(shape({"16", "4", "2"}, 2) == "16 4 2");
  CHECK(refusal({"16", "4", "2"}, 4) ==
        "x.yaml:3: train.batch: expected train.rows_per_pass 4 x 4 ranks x train.micro_steps 2 = "
        "32, got 16; leave one of the three out (auto)");
  CHECK(test::contains(refusal({"64", "1", "17"}, 4), "= 68, got 64"));
  CHECK(test::contains(refusal({"7", "2", "2"}, 2), "= 8, got 7"));
}

TEST_CASE("step shape: what a fixed order needs and does not have") {
  const auto of = [](const std::string& train) {
    return test::error_of(
        [&] { parse_config("train: {" + train + "}\nfsdp: {fixed_order: true}", "x.yaml", {}); });
  };
  CHECK(of("rows_per_pass: 2").empty());
  CHECK(of("batch: 8").starts_with("x.yaml:2: fsdp.fixed_order: needs train.rows_per_pass: "));
  CHECK(of("rows_per_pass: 2, loss_mean: ranks")
            .starts_with("x.yaml:2: fsdp.fixed_order: train.loss_mean: ranks "));
  CHECK(of("rows_per_pass: 2, attention_deterministic: false")
            .starts_with("x.yaml:2: fsdp.fixed_order: train.attention_deterministic: false "));
}

}  // namespace
}  // namespace fsdp::config
