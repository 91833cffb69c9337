// How fast a machine is, and so how long the calls of a training step take there: a kernel takes
// what its row of the rates says. A kernel without a row is measured where a meter is given; else
// its time is estimated from its declared cost. Collectives take a latency and their bytes.
// Not here: the file of rates (rates_file.h), measuring (call_meter.h).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "comm/meta_transport.h"
#include "kernels/meta/call_times.h"

namespace fsdp::tools {

// `latency_us` and the bytes at `bytes_per_s`.
struct LinkRate {
  double latency_us = 0;
  double bytes_per_s = 0;

  double seconds(double bytes) const { return latency_us * 1e-6 + bytes / bytes_per_s; }
  bool operator==(const LinkRate&) const = default;
};

// Calls with the same key take the same time.
struct CallKey {
  std::string kernel;  // as in traces
  std::string shape;   // of meta::KernelCall
  DType dtype = DType::kF32;
  auto operator<=>(const CallKey&) const = default;
};

struct Rates {
  std::string machine;  // for people
  // Of matrix products, by their operands' dtype.
  std::map<DType, double> flops_per_s;
  double memory_bytes_per_s = 0;  // read and written
  double kernel_us = 0;           // the least that a kernel takes
  double issue_us = 0;            // of the host, for each call
  int ranks_per_node = 8;
  // Of a rank to the others of its group, as nccl-tests' busbw. Where a group spans nodes, its
  // ranks on a node share the node's links: each has one, and all of them work for the group.
  LinkRate inside_node, between_nodes;
  LinkRate host_copy;                  // between a device and its host
  LinkRate disk_read, disk_write;      // of a node, whose ranks share them
  double host_memory_bytes_per_s = 0;  // of a rank's share of its host; 0: the host computes it all
  std::map<CallKey, double> kernels;   // microseconds of one call
  bool operator==(const Rates&) const = default;
};

// Seconds of a call on this machine; nothing where that would take too much time or memory.
using MeasureCall = std::function<std::optional<double>(const meta::KernelCall& call)>;

class CallRates final : public meta::CallTimes {
 public:
  explicit CallRates(Rates rates, MeasureCall measure = {});

  double kernel_seconds(const meta::KernelCall& call) override;
  double host_kernel_seconds(const meta::KernelCall& call) override;
  bool host_is_device() const override { return rates_.host_memory_bytes_per_s == 0; }
  double host_copy_seconds(int64_t bytes) override;
  double file_seconds(int64_t bytes, bool writes) override;
  double issue_seconds() const override { return rates_.issue_us * 1e-6; }
  double collective_seconds(const comm::MetaCollective& collective) const;

  // With the rows that were measured.
  const Rates& rates() const { return rates_; }
  // Of the calls that were asked for: how many had a row, were measured, were estimated.
  struct Sources {
    int64_t rows = 0, measured = 0, estimated = 0;
  };
  const Sources& distinct_calls() const { return sources_; }

 private:
  double estimated_us(const meta::KernelCall& call) const;

  Rates rates_;
  MeasureCall measure_;
  std::map<CallKey, double> known_;  // microseconds, of calls that were asked for
  Sources sources_;
};

}  // namespace fsdp::tools
