// Rows before measurements before estimates.
#include "tools/predict/call_rates.h"

#include "tools/predict/device_model.h"
#include "tools/predict/fabric_model.h"

namespace fsdp::tools {

CallRates::CallRates(Rates rates, MeasureCall measure, double percentile)
    : rates_(std::move(rates)), measure_(std::move(measure)), percentile_(percentile) {}

double CallRates::kernel_seconds(const meta::KernelCall& call) {
  CallKey key = {std::string(call.kernel), call.shape, call.dtype};
  const auto known = known_.find(key);
  if (known != known_.end()) return known->second * 1e-6;
  double us = 0;
  if (const auto row = rates_.kernels.find(key); row != rates_.kernels.end()) {
    us = row->second;
    ++sources_.rows;
  } else if (const auto seconds = measure_ ? measure_(call) : std::nullopt; seconds) {
    us = *seconds * 1e6;
    rates_.kernels.emplace(key, us);
    ++sources_.measured;
  } else {
    us = 1e6 * modelled_seconds(rates_, call);
    ++sources_.estimated;
  }
  known_.emplace(std::move(key), us);
  return us * 1e-6;
}

// The optimizer's kernels, which read and write memory once.
double CallRates::host_kernel_seconds(const meta::KernelCall& call) {
  if (rates_.host_memory_bytes_per_s == 0) return kernel_seconds(call);
  return static_cast<double>(call.cost.bytes) / rates_.host_memory_bytes_per_s;
}

double CallRates::host_copy_seconds(int64_t bytes) {
  return rates_.host_copy.seconds(static_cast<double>(bytes));
}

double CallRates::file_seconds(int64_t bytes, bool writes) {
  const LinkRate& disk = writes ? rates_.disk_write : rates_.disk_read;
  return disk.seconds(static_cast<double>(bytes));
}

double CallRates::collective_seconds(const comm::MetaCollective& collective) const {
  return tools::collective_seconds(rates_, collective.kind, static_cast<double>(collective.bytes),
                                   place_of(collective.members, rates_.ranks_per_node),
                                   percentile_);
}

}  // namespace fsdp::tools
