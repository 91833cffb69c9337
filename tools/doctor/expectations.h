// --expect gpus=8,nic_gbit=100: what must be there. An absence, or a lower number, then fails.
#pragma once

#include <string>
#include <vector>

#include "tools/doctor/check.h"

namespace fsdp::tools::doctor {

struct Expectation {
  std::string name;
  double least = 0;
};
// Error that lists the known names, for an unknown one; Error for what is no number above 0.
std::vector<Expectation> parse_expectations(const std::string& text);
// "gpus, ranks, ..."
std::string expectation_names();

// A check whose number is lower fails, with the line that mends it. What is well needs none then.
void demand(const std::vector<Expectation>& expected, std::vector<HostReport>& hosts);

}  // namespace fsdp::tools::doctor
