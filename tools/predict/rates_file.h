// The file of rates: JSON, with units in its keys. Read by line and key: what is not known, missing
// or no positive number is refused. Not here: what rates mean (call_rates.h).
#pragma once

#include <filesystem>

#include "tools/predict/call_rates.h"

namespace fsdp::tools {

Rates read_rates(const std::filesystem::path& file);
void write_rates(const std::filesystem::path& file, const Rates& rates);

}  // namespace fsdp::tools
