// Where the time of a predicted step goes: what the device computes, and what it waits for while it
// computes nothing. Of the calls that a run without bytes issued (tools/predict/meta_run.h).
// Not here: unit by unit (tools/predict/unit_timeline.h).
#pragma once

#include <string>

#include "tools/predict/meta_run.h"

namespace fsdp::tools {

struct StepShares {
  // Computing. Slowed by collectives beside it: that is in here.
  double products_s = 0;  // matrix products and attention
  double passes_s = 0;    // kernels that read and write memory
  // Waiting: nothing computes, and of what runs then the first of these.
  double gather_s = 0;    // all-gathers
  double reduce_s = 0;    // reduce-scatters and all-reduces, also of norms and losses
  double transfer_s = 0;  // to the host and its disk, or from them
  double host_s = 0;      // nothing runs: the host has not issued it yet, or its CPU updates

  double exposed_s() const { return gather_s + reduce_s; }  // communication
  double waiting_s() const { return gather_s + reduce_s + transfer_s + host_s; }
  double step_s() const { return products_s + passes_s + waiting_s(); }
  // "compute", "memory", "gather", "reduce", "transfer", "host": where most of the time goes.
  std::string bound() const;
};

// `calls`: of a step of `step_ms`, in the order of the host.
StepShares step_shares(const std::vector<StepCall>& calls, double step_ms);

}  // namespace fsdp::tools
