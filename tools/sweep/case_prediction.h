// What a case would take of each place, whether that fits, and how long a step would last:
// predicted, without running it. Read next: tools/predict/memory_view.h.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/io/json.h"
#include "tools/config/config.h"
#include "tools/sweep/sweep_cases.h"

namespace fsdp::tools {

struct CasePrediction {
  size_t device = 0, host = 0, file = 0;  // bytes of a rank
  double step_ms = 0;
  std::string machine;  // of the milliseconds
  // Why train would refuse it on this machine, with what would fit; "": it would not.
  std::string refusal;
};
// `rates_file`: what calls take; "": a nominal GPU.
CasePrediction predict_case(const config::TrainConfig& config, int ranks,
                            const std::string& rates_file);

// All cases, for people; below them what would be refused, and the notes on their configurations.
std::string predicted_table(const std::vector<SweepCase>& cases, const std::string& rates_file);

// The columns full_size_peak (MiB) and full_size_fits, of the latter only with a GPU.
std::map<std::string, Json> predict_full_size(const FullSizeCase& full);

}  // namespace fsdp::tools
