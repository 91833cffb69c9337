// The file of rates: JSON, with units in its keys. Read by line and key: what is not known, missing
// or no positive number is refused. Not here: what rates mean (call_rates.h).
#pragma once

#include <filesystem>

#include "tools/predict/call_meter.h"

namespace fsdp::tools {

Rates read_rates(const std::filesystem::path& file);
void write_rates(const std::filesystem::path& file, const Rates& rates);

// What the calls of a run take: by the rates of `file`; without one ("") by the rates of this
// machine, where there is a meter, else by nominal ones. A meter measures the calls that have no
// row; null: they are estimated.
std::shared_ptr<CallRates> call_rates(const std::string& file, CallMeter* meter);

}  // namespace fsdp::tools
