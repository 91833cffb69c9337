// What of a host keeps ranks from running, or slows them down, and what mends it: a function of the
// facts. Only what one line mends is wrong; the rest is said. Not here: the facts (host_facts.h).
#pragma once

#include <vector>

#include "tools/doctor/check.h"
#include "tools/doctor/host_facts.h"

namespace fsdp::tools::doctor {

// The job that the host has to bear.
struct JobShape {
  int ranks = 1;  // of all hosts
  int on_host = 1;
  int gpus = 0;  // of this host

  bool on_several_hosts() const { return ranks > on_host; }
};

std::vector<Check> host_checks(const HostFacts& facts, const JobShape& job);

}  // namespace fsdp::tools::doctor
