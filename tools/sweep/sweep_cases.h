// The cases of a recipe: for each the whole configuration, checked, so that a mistake is found
// before anything runs. Read next: sweep_folder.h. Not here: names of combinations
// (tools/jobs/variations.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/config/config.h"
#include "tools/sweep/recipe.h"

namespace fsdp::tools {

// What is predicted of a case, and never trained.
struct FullSizeCase {
  config::TrainConfig config;
  int ranks = 1;
  std::string gpu;  // "": the CPU computes
};

struct SweepCase {
  std::string name;
  int ranks = 1;
  config::TrainConfig config;  // with whole paths, without runtime.run_dir
  std::optional<FullSizeCase> full_size = {};
  std::vector<std::string> notes = {};  // on the configurations, for people
};

// In the order in which they run. Errors name the place of a key and the case. A key of one case
// must have an effect there, any other key in a case at least.
std::vector<SweepCase> cases_of(const Recipe& recipe);

}  // namespace fsdp::tools
