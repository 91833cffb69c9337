// Times the lines of the table of kernels on a backend. Times are those of the backend's trace:
// measured where the kernel runs, by events of the device where it has them.
//
// [Note: inputs rotate] Every call works on another set of inputs than the one before, and the sets
// together are larger than the last cache: what is timed comes from memory, as in a training step.
// Read next: tools/bench/kernel_case.h (the table). Not here: printing (kernel_report.h).
#pragma once

#include "core/trace.h"
#include "tools/bench/kernel_case.h"
#include "tools/bench/statistics.h"

namespace fsdp::tools {

struct KernelTiming {
  size_t cache_bytes = 32u << 20;  // of the device's last cache
  double seconds = 0.2;            // of work per kernel, at least
  int64_t least_calls = 7;         // timed ones, at least, unless that takes more than
  double most_seconds = 1;         // of work, after two calls
};

struct KernelResult {
  std::string name, shape;
  Cost cost;
  KernelBar bar;
  size_t input_sets = 0;
  size_t calls = 0;
  Spread seconds;  // of one call

  double bytes_per_s() const { return static_cast<double>(cost.bytes) / seconds.median; }
  double flops_per_s() const { return static_cast<double>(cost.flops) / seconds.median; }
};
KernelResult time_kernel(KernelInputs& inputs, const KernelCase& line, const KernelTiming& timing);

// What this device reaches: bytes read and written by a copy, operations of a large square product.
struct DeviceRates {
  double copy_bytes_per_s = 0;
  double product_flops_per_s = 0;
};
DeviceRates measure_rates(KernelInputs& inputs, DType dtype, const KernelTiming& timing);

struct KernelBench {
  DeviceRates rates;  // the higher ones of before and after the kernels
  std::vector<KernelResult> kernels;
};
KernelBench bench_kernels(Backend& backend, const std::vector<KernelCase>& table, DType dtype,
                          const KernelTiming& timing);

}  // namespace fsdp::tools
