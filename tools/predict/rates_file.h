// The file of rates: JSON, with units in its keys. Read by line and key: what is not known, missing
// or no positive number is refused. A file with "like" says only what is different from a machine
// that the program knows (machines.h). Not here: what rates mean (rates.h).
#pragma once

#include <filesystem>

#include "core/io/json.h"
#include "tools/predict/call_meter.h"

namespace fsdp::tools {

Rates read_rates(const std::filesystem::path& file);
void write_rates(const std::filesystem::path& file, const Rates& rates);
// `where`: whose errors they are.
Rates rates_of_json(const Json& json, const std::string& where);

struct RatesChoice {
  std::string rates;           // the name of a machine, or a file; "": none
  CallMeter* meter = nullptr;  // measures the calls that have no row; null: they are estimated
  double percentile = 50;      // see CallRates
};
// What the calls of a run take: by the rates that are named; without them by the rates of this
// machine, where there is a meter, else by those of kUsualMachine.
std::shared_ptr<CallRates> call_rates(const RatesChoice& choice);

}  // namespace fsdp::tools
