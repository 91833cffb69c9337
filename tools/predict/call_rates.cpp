// Rows, estimates, and the formula of a collective.
#include "tools/predict/call_rates.h"

#include <algorithm>

namespace fsdp::tools {
namespace {

// Bytes that a rank sends, or receives where that is more, for a buffer of `bytes`: what
// nccl-tests divides by the time for its busbw.
double bus_bytes(comm::Collective kind, double bytes, double ranks) {
  switch (kind) {
    case comm::Collective::kAllReduce:
      return 2 * bytes * (ranks - 1) / ranks;
    case comm::Collective::kBroadcast:
      return bytes;
    default:
      return bytes * (ranks - 1) / ranks;
  }
}

}  // namespace

CallRates::CallRates(Rates rates, MeasureCall measure)
    : rates_(std::move(rates)), measure_(std::move(measure)) {}

double CallRates::estimated_us(const meta::KernelCall& call) const {
  const auto found = rates_.flops_per_s.find(call.dtype);
  const double flops_per_s =
      found != rates_.flops_per_s.end() ? found->second : rates_.flops_per_s.at(DType::kF32);
  const double product_s = static_cast<double>(call.cost.flops) / flops_per_s;
  const double pass_s = static_cast<double>(call.cost.bytes) / rates_.memory_bytes_per_s;
  return std::max(rates_.kernel_us, 1e6 * std::max(product_s, pass_s));
}

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
    us = estimated_us(call);
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
  const auto ranks = static_cast<double>(collective.members.size());
  double nodes = 1;  // members of a group are in the order of their ranks
  for (size_t i = 1; i < collective.members.size(); ++i) {
    const int node = collective.members[i] / rates_.ranks_per_node;
    if (node != collective.members[i - 1] / rates_.ranks_per_node) ++nodes;
  }
  const double bytes = bus_bytes(collective.kind, static_cast<double>(collective.bytes), ranks);
  if (nodes == 1) return rates_.inside_node.seconds(bytes);
  LinkRate link = rates_.between_nodes;
  link.bytes_per_s *= ranks / nodes;
  link.bytes_per_s = std::min(link.bytes_per_s, rates_.inside_node.bytes_per_s);
  return link.seconds(bytes);
}

}  // namespace fsdp::tools
