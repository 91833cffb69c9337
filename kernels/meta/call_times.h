// How long calls take: what the virtual clocks of the meta backend ask. Not here: answers
// (tools/predict/call_rates.h).
#pragma once

#include "kernels/meta/kernel_call.h"

namespace fsdp::meta {

class CallTimes {
 public:
  virtual ~CallTimes() = default;
  virtual double kernel_seconds(const KernelCall& call) = 0;  // also copies within the device
  // On the host's CPU, where another device computes the model.
  virtual double host_kernel_seconds(const KernelCall& call) = 0;
  // The same machine computes both: one kernel after the other.
  virtual bool host_is_device() const { return false; }
  virtual double host_copy_seconds(int64_t bytes) = 0;  // to the host or from it
  // Between memory and a file of the node's disk.
  virtual double file_seconds(int64_t bytes, bool writes) = 0;
  virtual double issue_seconds() = 0;  // of the host, for the call that was asked for last
  // The share of their speed that a device's kernels lose while a collective runs, which takes
  // processors and memory bandwidth from them. Below 1.
  virtual double interference() const { return 0; }
};

}  // namespace fsdp::meta
