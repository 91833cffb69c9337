// Which published steps predictions of a machine were held against (tests/fixtures/planning): what
// is outside of it says so. Not here: how good predictions are within (validation.h).
#pragma once

#include <string>
#include <vector>

#include "tools/config/config.h"

namespace fsdp::tools {

struct ValidatedRange {
  const char* machine;
  int64_t longest;  // tokens of a row
  int most_gpus;
  const char* dtypes;  // "bf16 f16"
};
const std::vector<ValidatedRange>& validated_ranges();

// A line for everything of the job that no published step had.
std::vector<std::string> outside_of_validation(const std::string& machine,
                                               const config::TrainConfig& config, int gpus);

}  // namespace fsdp::tools
