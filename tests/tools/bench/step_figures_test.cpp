// Figures of steps and kernels whose times are known.
#include "tools/bench/step_figures.h"

#include <doctest/doctest.h>

namespace fsdp::tools {
namespace {

TraceEvent event(const char* lane, const char* name, int64_t begin_ms, int64_t end_ms) {
  return {.name = name,
          .scope = "",
          .lane = lane,
          .enqueued_ns = 0,
          .begin_ns = begin_ms * 1'000'000,
          .end_ns = end_ms * 1'000'000};
}

TEST_CASE("step figures: the fastest step against the highest rates, medians against medians") {
  const auto light = [](double rate) {
    return SpeedOfLight{
        .flops_per_s = rate, .copy_bytes_per_s = 2 * rate, .flops = 10, .pass_bytes = 20};
  };
  const StepBench bench = {.step_ms = {50, 40, 80},
                           .slices = {light(1000), light(500), light(800)}};
  const StepFigures f = figures_of(bench, {.batch = 2, .length = 10});
  CHECK(f.fastest_ms == 40);
  CHECK(f.median_ms == 50);
  CHECK(f.tokens_per_s == doctest::Approx(500));
  CHECK(f.percent == doctest::Approx(100 * 20.0 / 40));         // 10 ms of products, 10 of passes
  CHECK(f.median_percent == doctest::Approx(100 * 25.0 / 50));  // 12.5 and 12.5
}

TEST_CASE("step figures: kernels by stream, each of its fastest step, with its work") {
  const StepBench bench = {
      .predicted = StepBench::Predicted{.kernels_ms = {{"matmul", 3.5}, {"copy", 1}}},
      .traces = {{event("compute", "matmul", 0, 4), event("compute", "gelu", 4, 7),
                  event("compute", "matmul", 7, 8), event("gather", "copy", 0, 9)},
                 {event("compute", "matmul", 0, 3), event("compute", "gelu", 3, 9),
                  event("compute", "matmul", 9, 10), event("gather", "copy", 0, 8)}}};
  const StepCost cost = {.products = {{{.m = 2, .n = 3, .k = 5}, 7}},
                         .passes = {{"gelu", {.bytes = 33}, 1}, {"copy", {.bytes = 44}, 1}},
                         .attention = {{"attention_forward", {.flops = 70}, 1}}};
  const KernelTotals totals = kernel_totals(bench, cost);
  REQUIRE(totals.size() == 3);
  const KernelTotal& matmul = totals.at({"compute", "matmul"});
  CHECK(matmul.ms == doctest::Approx(4));
  CHECK(matmul.calls == 2);
  CHECK(matmul.work == 7 * 2 * 2 * 3 * 5);
  CHECK(matmul.predicted_ms == 3.5);
  const KernelTotal& gelu = totals.at({"compute", "gelu"});
  CHECK(gelu.ms == doctest::Approx(3));
  CHECK(gelu.work == 33);
  CHECK_FALSE(gelu.predicted_ms.has_value());
  const KernelTotal& copy = totals.at({"gather", "copy"});  // not on the compute stream
  CHECK(copy.work == 0);
  CHECK_FALSE(copy.predicted_ms.has_value());
}

}  // namespace
}  // namespace fsdp::tools
