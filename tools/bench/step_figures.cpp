// Sums and quotients of what was measured.
#include "tools/bench/step_figures.h"

#include <algorithm>

namespace fsdp::tools {
namespace {

KernelTotals totals_of_step(const std::vector<TraceEvent>& events) {
  KernelTotals totals;
  for (const TraceEvent& event : events) {
    KernelTotal& total = totals[{event.lane, event.name}];
    total.ms += static_cast<double>(event.end_ns - event.begin_ns) * 1e-6;
    ++total.calls;
  }
  return totals;
}

}  // namespace

StepFigures figures_of(const StepBench& bench, const StepBenchOptions& options) {
  StepFigures f = {.fastest_ms = bench.fastest_ms(),
                   .median_ms = bench.median_ms(),
                   .tokens_per_s = bench.tokens_per_s(options),
                   .light = highest(bench.slices),
                   .median_light = median(bench.slices)};
  f.percent = 100 * f.light.step_ms() / f.fastest_ms;
  f.median_percent = 100 * f.median_light.step_ms() / f.median_ms;
  return f;
}

KernelTotals kernel_totals(const StepBench& bench, const StepCost& cost) {
  KernelTotals totals = totals_of_step(bench.traces.at(0));
  for (const std::vector<TraceEvent>& events : bench.traces) {
    for (const auto& [key, total] : totals_of_step(events)) {
      totals[key].ms = std::min(totals[key].ms, total.ms);
    }
  }
  const auto add_work = [&](const std::string& kernel, int64_t work) {
    const auto found = totals.find({"compute", kernel});
    if (found != totals.end()) found->second.work = static_cast<double>(work);
  };
  for (const StepPass& pass : cost.passes) add_work(pass.kernel, pass.cost.bytes);
  for (const StepPass& pass : cost.attention) add_work(pass.kernel, pass.cost.flops);
  add_work("matmul", cost.product_flops());
  if (bench.predicted) {
    for (auto& [key, total] : totals) {
      const auto predicted = bench.predicted->kernels_ms.find(key.second);
      if (key.first == "compute" && predicted != bench.predicted->kernels_ms.end()) {
        total.predicted_ms = predicted->second;
      }
    }
  }
  return totals;
}

}  // namespace fsdp::tools
