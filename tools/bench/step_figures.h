// What is told of a benchmark of a step: its times beside the speed of light, and its kernels.
// Not here: measuring (bench_step.h), printing (tools/commands/bench.cpp).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "tools/bench/bench_step.h"

namespace fsdp::tools {

// Strict: the fastest step against the highest rates. Beside it, medians against medians.
struct StepFigures {
  double fastest_ms = 0, median_ms = 0, tokens_per_s = 0;
  SpeedOfLight light, median_light;
  double percent = 0, median_percent = 0;
};
StepFigures figures_of(const StepBench& bench, const StepBenchOptions& options);

struct KernelTotal {
  double ms = 0;
  int64_t calls = 0;
  double work = 0;  // bytes, or FLOPs of matrix products and attention; 0: not in the cost table
  std::optional<double> predicted_ms = std::nullopt;  // where the step was predicted
};
using KernelTotals = std::map<std::pair<std::string, std::string>, KernelTotal>;  // (lane, kernel)
// Of the calls of one step; of each kernel the fastest of the traced steps.
KernelTotals kernel_totals(const StepBench& bench, const StepCost& cost);

}  // namespace fsdp::tools
