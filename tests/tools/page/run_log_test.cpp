// The curves of a log as a run writes it, of one that was killed, and of steps that were done
// twice.
#include "tools/page/run_log.h"

#include <cmath>

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"
#include "tools/report/metrics.h"

namespace fsdp::tools {
namespace {

TEST_CASE("run log: points are what the run has logged") {
  const test::TempFolder folder;
  MetricsLog log(folder / "metrics.jsonl");
  StepMetrics step = {.totals = {.steps = 7, .wall_time_s = 1.5},
                      .loss = 2.0 / 3,
                      .grad_norm = NAN,
                      .learning_rate = 1.5e-7};
  log.step(step);
  log.evaluation({.step = 7, .loss = 3});
  step.totals.steps = 8, step.grad_norm = 4;
  log.step(step);
  const RunLog read = read_run_log(folder / "metrics.jsonl");
  CHECK(read.foreign == 0);
  CHECK(read.curve("loss").points == std::vector<CurvePoint>{{7, 2.0 / 3, 1.5}, {8, 2.0 / 3, 1.5}});
  CHECK(read.curve("validation_loss").points == std::vector<CurvePoint>{{7, 3, 1.5}});
  CHECK(read.curve("learning_rate").points.front().value == 1.5e-7);
  CHECK(read.curve("grad_norm").points == std::vector<CurvePoint>{{8, 4, 1.5}});
  CHECK(read.curve("grad_norm").not_finite == std::vector<int64_t>{7});
  CHECK(read.curve("validation_loss").not_finite.empty());
  CHECK(test::error_of([&] { read.curve("los"); }) == "los: no curve of this name");
}

TEST_CASE("run log: steps that were done again are finite if they are so at last") {
  const test::TempFolder folder;
  folder.write(
      "metrics.jsonl",
      "{\"step\":1,\"loss\":null}\n{\"step\":2,\"loss\":null}\n{\"step\":3,\"loss\":null}\n"
      "{\"step\":2,\"loss\":3.5}\n{\"step\":3,\"loss\":null}\n");
  const RunLog read = read_run_log(folder / "metrics.jsonl");
  CHECK(read.curve("loss").points == std::vector<CurvePoint>{{2, 3.5, 0}});
  CHECK(read.curve("loss").not_finite == std::vector<int64_t>{1, 3});
}

TEST_CASE("run log: half a line, steps that were done again, no file") {
  const test::TempFolder folder;
  folder.write("metrics.jsonl",
               "{\"step\":1,\"loss\":4}\n{\"step\":2,\"loss\":3}\n{\"step\":3,\"loss\":2}\n"
               "{\"step\":2,\"loss\":3.5}\nwords\n{\"step\":4,\"lo");
  const RunLog read = read_run_log(folder / "metrics.jsonl");
  CHECK(read.curve("loss").points == std::vector<CurvePoint>{{1, 4, 0}, {2, 3.5, 0}});
  CHECK(read.foreign == 2);
  CHECK(read_run_log(folder / "nothing").curve("loss").points.empty());
}

}  // namespace
}  // namespace fsdp::tools
