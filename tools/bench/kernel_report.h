// What `fsdp bench kernels` tells: a table for people, JSON and CSV for programs, and the
// comparison with an earlier run's JSON.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tools/bench/kernel_bench.h"
#include "tools/launch/backend_choice.h"

namespace fsdp::tools {

// What a measurement was taken on, as far as it is known.

struct DeviceReport {
  std::string backend;     // "cpu", "cuda"
  std::string name;        // "NVIDIA H200"
  int threads = 0;         // of the CPU's kernels
  bool tf32 = false;       // a GPU's products of f32 round to it
  size_t cache_bytes = 0;  // the last cache before memory
  // Now, so ask right after the work.
  std::optional<double> clock_mhz;  // of the cores
  std::optional<double> memory_clock_mhz;
  std::optional<double> power_w;
};
DeviceReport report_device(const Backend& backend, const BackendOptions& options);

// ---- pure part, for tests ----

// Bytes of all caches of the highest level together, each once, however many CPUs share it; 0: not
// told. `cpus` as /sys/devices/system/cpu. What sysconf() says counts, on some machines, the whole
// processor where a virtual machine has a part of it.
size_t last_caches(const std::filesystem::path& cpus);

// ----

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
