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

struct ExplainQuestion {
  int ranks = 1;
  // A machine, on which the ranks are; "": what runtime.backend says.
  std::string gpu = {};
  RatesChoice times = {};  // without rates and meter: those of `gpu`
  // Also the elements that PyTorch would give each rank.
  std::optional<PyTorchLayout> layout = std::nullopt;
};
Explanation explain(const config::TrainConfig& config, const ExplainQuestion& question);

// Of it the model and its units.
std::string explain_units(const config::TrainConfig& config, int ranks);

}  // namespace fsdp::tools
