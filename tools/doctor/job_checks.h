// What must be alike on all hosts of a job: the program, the libraries that its ranks talk over,
// the clocks. Not here: one host alone (host_checks.h, library_checks.h).
#pragma once

#include <string>
#include <vector>

#include "tools/doctor/check.h"
#include "tools/doctor/clock_skew.h"

namespace fsdp::tools::doctor {

// A check whose value is another than on most hosts gets worse, with the line that mends it. Of
// equally many, those of the first host are right. `program`: its path.
void compare_hosts(std::vector<HostReport>& hosts, const std::string& program);

// Of a host's clock against the one of the host `other`.
Check clock_check(const ClockOffset& offset, const std::string& other);

}  // namespace fsdp::tools::doctor
