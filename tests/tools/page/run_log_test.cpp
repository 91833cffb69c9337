// The curves of a log as a run writes it, of one that was killed, and of steps that were done
// twice; fewer points of a curve: the extremes, the ends and the order stay as they are.
#include "tools/page/run_log.h"

#include <algorithm>
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

double lowest(const std::vector<CurvePoint>& points) {
  return std::min_element(points.begin(), points.end(),
                          [](const auto& a, const auto& b) { return a.value < b.value; })
      ->value;
}
double highest(const std::vector<CurvePoint>& points) {
  return std::max_element(points.begin(), points.end(),
                          [](const auto& a, const auto& b) { return a.value < b.value; })
      ->value;
}

// A curve with a spike of one point at `spike`, and a dip beside it.
std::vector<CurvePoint> curve(int64_t points, int64_t spike) {
  std::vector<CurvePoint> out;
  for (int64_t i = 0; i < points; ++i) {
    const double wave = static_cast<double>((i * 7919) % 1000) / 1000;
    out.push_back({i + 1, i == spike ? 99.5 : i == spike + 1 ? -3.25 : wave, 0.5 * wave});
  }
  return out;
}

TEST_CASE("downsample: a curve that is short enough stays") {
  for (const int64_t points : {0, 1, 3, 4})
    CHECK(downsample(curve(points, -9), 4) == curve(points, -9));
  CHECK(downsample(curve(1000, 3), 1000) == curve(1000, 3));
}

TEST_CASE("downsample: extremes of one point stay exactly, wherever they lie") {
  for (const int64_t spike : {0, 1, 2, 49'999, 99'997, 99'998, 99'999}) {
    const std::vector<CurvePoint> all = curve(100'000, spike);
    const std::vector<CurvePoint> few = downsample(all, 1000);
    CAPTURE(spike);
    CHECK(few.size() <= 1000);
    CHECK(few.size() > 900);
    CHECK(few.front() == all.front());
    CHECK(few.back() == all.back());
    CHECK(lowest(few) == lowest(all));
    CHECK(highest(few) == highest(all));
    for (size_t i = 1; i < few.size(); ++i) REQUIRE(few[i - 1].step < few[i].step);
    for (const CurvePoint& point : few)  // none is made up
      REQUIRE(point == all[static_cast<size_t>(point.step - 1)]);
  }
}

TEST_CASE("downsample: of each stretch the lowest and the highest point") {
  std::vector<CurvePoint> points;
  for (const double value : {5, 1, 9, 3, 4, 4, 4, 4, 8, 2, 6, 7}) {
    points.push_back({static_cast<int64_t>(points.size()), value, 0});
  }
  std::vector<int64_t> steps;  // the ends, of [1, 6) 1 and 2, of [6, 11) 8 and 9
  for (const CurvePoint& point : downsample(points, 6)) steps.push_back(point.step);
  CHECK(steps == std::vector<int64_t>{0, 1, 2, 8, 9, 11});
}

TEST_CASE("downsample: too few points are asked for") {
  CHECK(test::contains(test::error_of([] { downsample({}, 3); }), "at least 4 points, got 3"));
}

}  // namespace
}  // namespace fsdp::tools
