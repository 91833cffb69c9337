// How fast this machine's disk takes and gives what a checkpoint holds. Not here: kernels
// (call_meter.h).
#pragma once

#include <filesystem>

#include "tools/predict/call_rates.h"

namespace fsdp::tools {

struct DiskRates {
  LinkRate read, write;
};
// Of a file of `bytes` in the folder, which it removes: written in order and synchronized, then
// read from the disk, where the system lets go of its copy. Error when it cannot be written.
DiskRates measure_disk(const std::filesystem::path& folder, size_t bytes = size_t{256} << 20);

}  // namespace fsdp::tools
