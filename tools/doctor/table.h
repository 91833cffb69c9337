// The doctor's table, for people: a line for each check, and one more for each group of hosts where
// hosts differ; below it what is wrong, with the line that mends it. Not here: --json (check.h).
#pragma once

#include <string>
#include <vector>

#include "tools/doctor/check.h"

namespace fsdp::tools::doctor {

std::string table(const std::vector<HostReport>& hosts);

}  // namespace fsdp::tools::doctor
