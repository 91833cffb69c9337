// What nvidia-smi and the kernel's log say of GPUs that are there but not well: errors of their
// memory, rows that wait for a reset, clocks that are held down, Xid errors. Not here: which GPUs
// there are (library_facts.h).
#pragma once

#include <string>
#include <vector>

#include "tools/doctor/check.h"

namespace fsdp::tools::doctor {

struct SmiOutput {
  bool there = false;  // an nvidia-smi
  int status = 0;      // 0: it did what it was asked
  std::string text;    // of nvidia-smi -q -x
  std::string xids;    // lines of the kernel's log; "": none, or not to be read
};
SmiOutput ask_nvidia_smi();

// One check: the worst that is said of any GPU. Fields that a driver does not know, "N/A",
// "[Not Supported]" say nothing.
Check health_check(const SmiOutput& said);

}  // namespace fsdp::tools::doctor
