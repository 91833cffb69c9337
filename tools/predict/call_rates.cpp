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

// Peaks of NVIDIA's data sheet for the A100 80 GB SXM (312 TFLOP/s in 16 bits, 19.5 in f32, 2039
// GB/s, NVLink 300 GB/s each way; a link of 200 Gbit/s for each GPU between machines). Programs
// reach about 60 % of the products, 80 % of the memory and 75 % of the links. The disk is assumed:
// an NVMe drive in each machine. The host: PCIe 4, and an eighth of the memory's rate of two EPYC
// of that time (2 x 204.8 GB/s).
Rates nominal_rates() {
  return {.machine = "an A100 80 GB, eight in a machine",
          .flops_per_s = {{DType::kF32, 0.6 * 19.5e12},
                          {DType::kBF16, 0.6 * 312e12},
                          {DType::kF16, 0.6 * 312e12},
                          {DType::kF64, 0.6 * 9.7e12}},
          .memory_bytes_per_s = 0.8 * 2039e9,
          .kernel_us = 3,
          .issue_us = 5,
          .ranks_per_node = 8,
          .inside_node = {.latency_us = 20, .bytes_per_s = 0.75 * 300e9},
          .between_nodes = {.latency_us = 50, .bytes_per_s = 0.75 * 25e9},
          .host_copy = {.latency_us = 10, .bytes_per_s = 25e9},
          .disk_read = {.latency_us = 100, .bytes_per_s = 5e9},
          .disk_write = {.latency_us = 100, .bytes_per_s = 2.5e9},
          .host_memory_bytes_per_s = 0.8 * 409.6e9 / 8,
          .kernels = {}};
}

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
