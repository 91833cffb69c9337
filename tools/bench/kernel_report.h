// What `fsdp bench kernels` tells: a table for people, JSON and CSV for programs, and the
// comparison with an earlier run's JSON.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tools/bench/device_report.h"
#include "tools/bench/kernel_bench.h"

namespace fsdp::tools {

struct KernelReport {
  DeviceReport device;
  std::string commit;
  KernelExtentsOptions extents;
  KernelBench bench;
};
// Percentages are of the rates measured in the same run. Bars are told of GPUs only.
std::string format_kernels(const KernelReport& report);
std::string kernels_json(const KernelReport& report);
std::string kernels_csv(const KernelReport& report);  // every line says what it was measured on

// ---- against an earlier run ----

struct KernelChange {
  std::string name, shape;
  double before_us = 0, now_us = 0;  // the fastest calls: a busy machine only adds

  double percent() const { return 100 * (now_us / before_us - 1); }
};
struct BaselineComparison {
  std::vector<KernelChange> kernels;  // that both runs have
  size_t added = 0, gone = 0;         // that only this run has, only the baseline has

  std::vector<KernelChange> slower(double tolerance_percent) const;
};
// `baseline`: what kernels_json wrote. Error that names file and key when it is something else or
// was measured on another device, with other threads or another dtype. Needs no measurement yet.
void check_baseline(const std::filesystem::path& baseline, const KernelReport& report);
// The same errors; and when no kernel is in both.
BaselineComparison compare_with_baseline(const std::filesystem::path& baseline,
                                         const KernelReport& report);
std::string format_comparison(const BaselineComparison& comparison, double tolerance_percent);

}  // namespace fsdp::tools
