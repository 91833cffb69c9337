// Which published steps predictions of a machine were held against (tests/fixtures/planning): a job
// outside of them says so. Not here: how good predictions are within (validation.h).
#pragma once

#include <string>
#include <vector>

#include "tools/plan/planned_job.h"

namespace fsdp::tools {

struct ValidatedRange {
  std::string machine;
  int64_t longest = 0;  // tokens of a row
  int most_gpus = 0;
  DType dtype = DType::kBF16;
  std::vector<std::string> strategies = {}, recompute = {};  // by their names in the configuration
  // Errors of the step's time with the machine's file, of the set that is predicted worst.
  double median = 0, p90 = 0;
};
const std::vector<ValidatedRange>& validated_ranges();

// "published steps on H100: half of them are predicted within 1.7 %, ..."; "": there are none.
std::string error_band(const std::string& machine);

// A line for everything of the job that no published step had.
std::vector<std::string> outside_of_validation(const PlanQuestion& question, const PlannedJob& job);

}  // namespace fsdp::tools
