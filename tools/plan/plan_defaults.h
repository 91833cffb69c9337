// What a plan takes where the configuration leaves a key out whose default is made for trials on a
// CPU: the dtype, the length of a row, the batch. Each is said.
#pragma once

#include <string>
#include <vector>

#include "tools/config/config.h"
#include "tools/predict/rates.h"

namespace fsdp::tools {

// Changes `config`; returns a line for each change. `gpus`: of the jobs, which all deal the batch
// evenly, in passes of 1, 2, 4, ... rows, unless their least common multiple is too large for it.
std::vector<std::string> take_plan_defaults(config::TrainConfig& config, const Rates& rates,
                                            const std::vector<int>& gpus, bool searches);

}  // namespace fsdp::tools
