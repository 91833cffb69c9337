// What `fsdp explain` says of a configuration: the model and its units, memory, batches, remarks,
// and a step's collectives, time and order. Views of one run of rank 0 without bytes. Read next:
// predicted_run.h, tools/predict/meta_run.h.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "tools/config/config.h"
#include "tools/predict/rates_file.h"
#include "tools/predict/unit_table.h"

namespace fsdp::tools {

struct Explanation {
  std::string text;                        // of many lines
  std::shared_ptr<const CallRates> rates;  // with what was measured
};
// `rates`, `meter`: as of call_rates. `layout`: also the elements that PyTorch would give each
// rank.
Explanation explain(const config::TrainConfig& config, int ranks, const std::string& rates,
                    CallMeter* meter, std::optional<PyTorchLayout> layout = std::nullopt);

// Of it the model and its units.
std::string explain_units(const config::TrainConfig& config, int ranks);

}  // namespace fsdp::tools
