// What a measurement was taken on, as far as it is known.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "tools/launch/backend_choice.h"

namespace fsdp::tools {

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

}  // namespace fsdp::tools
