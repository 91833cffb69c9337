// How fast this machine's disk takes and gives the state of `fsdp.offload: nvme`. Not here: kernels
// (call_meter.h).
#pragma once

#include <filesystem>

#include "tools/predict/call_rates.h"

namespace fsdp::tools {

struct DiskRates {
  LinkRate read, write;
};
// Of a state file of `bytes` in the folder (core/io/state_file.h), of which nothing is left:
// written and read in pieces as a run does it, past the system's cache where the system lets it.
// Error when it cannot be written.
DiskRates measure_disk(const std::filesystem::path& folder, size_t bytes = size_t{256} << 20);

}  // namespace fsdp::tools
