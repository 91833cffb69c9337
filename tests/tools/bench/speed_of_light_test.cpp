// The meter measures what a step consists of; choices among slices; times follow from rates.
#include "tools/bench/speed_of_light.h"

#include <doctest/doctest.h>

#include "kernels/cpu/cpu_backend.h"
#include "tests/support/sharded_run.h"
#include "tools/bench/bench_step.h"

namespace fsdp::tools {

TEST_CASE("speed of light: times follow from rates") {
  const SpeedOfLight light = {
      .flops_per_s = 2e9, .copy_bytes_per_s = 4e9, .flops = 6e9, .pass_bytes = 1e9};
  CHECK(light.product_ms() == doctest::Approx(3000));
  CHECK(light.pass_ms() == doctest::Approx(250));
  CHECK(light.step_ms() == doctest::Approx(3250));
}

TEST_CASE("speed of light: highest and median of each rate") {
  std::vector<SpeedOfLight> slices;
  for (const double rate : {3.0, 1.0, 2.0}) {
    slices.push_back(
        {.flops_per_s = rate, .copy_bytes_per_s = 10 - rate, .flops = 12, .pass_bytes = 36});
  }
  CHECK(highest(slices).flops_per_s == 3);
  CHECK(highest(slices).copy_bytes_per_s == 9);
  CHECK(highest(slices).step_ms() == doctest::Approx(1e3 * (12.0 / 3 + 36.0 / 9)));
  CHECK(median(slices).flops_per_s == 2);
  CHECK(median(slices).copy_bytes_per_s == 8);
  CHECK_THROWS_AS(highest({}), Error);
  SpeedOfLight light = {.flops = 6e9};
  CHECK(light.percent_of_peak(100) == 0);
  light.peak_flops_per_s = 120e9;
  CHECK(light.percent_of_peak(100) == doctest::Approx(50));
}

TEST_CASE("speed of light: a slice of a small model") {
  cpu::CpuBackend backend;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const StepCost cost = step_cost(
        {.model = test::small_llama(), .batch = 2, .length = 5, .dtype = dtype}, /*ranks=*/1);
    SpeedOfLightMeter meter(backend, cost, /*weight_bytes=*/1000, /*cpu_threads=*/1);
    const SpeedOfLight light = meter.measure();
    CHECK(light.flops == static_cast<double>(cost.product_flops() + cost.attention_flops()));
    CHECK(light.pass_bytes == static_cast<double>(cost.pass_bytes()));
    // Whatever the machine: more than 1 MFLOP/s and 100 MB/s, less than a petaflop and 10 TB/s.
    CHECK(light.flops_per_s > 1e6);
    CHECK(light.flops_per_s < 1e15);
    CHECK(light.copy_bytes_per_s > 1e8);
    CHECK(light.copy_bytes_per_s < 1e13);
    CHECK((light.peak_flops_per_s > 1e8 || dtype == DType::kBF16));  // of AMX none is measured
    CHECK(light.peak_flops_per_s < 1e15);
    SpeedOfLightMeter without(backend, cost, /*weight_bytes=*/1000, /*cpu_threads=*/0);
    CHECK(without.measure().peak_flops_per_s == 0);
  }
}

}  // namespace fsdp::tools
