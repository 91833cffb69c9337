// Contract: tools/config/step_shape.h.
#include "tools/config/step_shape.h"

#include "core/error.h"
#include "core/text/counted.h"

namespace fsdp::config {
namespace {

constexpr int64_t kDefaultBatch = 8;

int64_t divided_up(int64_t number, int64_t by) { return (number + by - 1) / by; }

// With rows_per_pass.
StepShape shape_in_passes(const TrainSection& train, int ranks) {
  StepShape shape = {.rows_per_pass = train.rows_per_pass, .ranks = ranks};
  const int64_t rows = shape.rows_per_pass;
  if (!train.batch) {
    shape.micro_steps = train.micro_steps.value_or(1);
    FSDP_CHECK(shape.micro_steps <= INT32_MAX / rows / ranks,
               "train.rows_per_pass: {} x {} x {} make a batch of more than {} rows", rows,
               counted(ranks, "rank"), counted(shape.micro_steps, "micro-step"), INT32_MAX);
    shape.batch = rows * ranks * shape.micro_steps;
    return shape;
  }
  shape.batch = *train.batch;
  FSDP_CHECK(
      shape.passes() >= ranks,
      "train.rows_per_pass: {} of train.batch {} make {}, fewer than {}: each rank needs one",
      counted(rows, "row"), shape.batch, counted(shape.passes(), "pass"), counted(ranks, "rank"));
  shape.micro_steps = train.micro_steps.value_or(divided_up(shape.passes(), ranks));
  FSDP_CHECK(
      !train.micro_steps || shape.micro_steps * rows * ranks == shape.batch,
      "train.batch: expected train.rows_per_pass {} x {} x train.micro_steps {} = {}, got {}; "
      "leave one of the three out (auto)",
      rows, counted(ranks, "rank"), shape.micro_steps, shape.micro_steps * rows * ranks,
      shape.batch);
  return shape;
}

}  // namespace

int64_t StepShape::passes() const { return divided_up(batch, rows_per_pass); }

std::string StepShape::text() const {
  const std::string on =
      fmt::format("{} x {}", counted(ranks, "rank"), counted(micro_steps, "micro-step"));
  if (rows_per_pass == 0) {
    const int64_t parts = ranks * micro_steps;
    const bool even = batch % parts == 0;
    return fmt::format("effective batch {} = {}{} x {}", batch, even ? "" : "at most ",
                       counted(divided_up(divided_up(batch, ranks), micro_steps), "row"), on);
  }
  if (rows_per_pass * ranks * micro_steps == batch) {
    return fmt::format("effective batch {} = {} x {}", batch, counted(rows_per_pass, "row"), on);
  }
  return fmt::format("effective batch {} = {} of {} on {}; {} without a pass in the last one",
                     batch, counted(passes(), "pass"), counted(rows_per_pass, "row"), on,
                     counted(ranks * micro_steps - passes(), "rank"));
}

StepShape step_shape(const TrainConfig& config, int ranks) {
  const TrainSection& train = config.train;
  if (train.rows_per_pass == 0) {
    return {.batch = train.batch.value_or(kDefaultBatch),
            .micro_steps = train.micro_steps.value_or(1),
            .ranks = ranks};
  }
  try {
    return shape_in_passes(train, ranks);
  } catch (const Error& error) {
    fail("{}", with_place(config, error.what()));
  }
}

}  // namespace fsdp::config
