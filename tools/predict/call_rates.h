// How long the calls of a training step take on a machine: a kernel takes what its row of the rates
// says. A kernel without a row is measured where a meter is given; else its time is estimated
// (modelled_seconds). Collectives: collective_seconds.
// Not here: the numbers of a machine (rates.h), their file (rates_file.h), measuring
// (call_meter.h).
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "comm/meta_transport.h"
#include "kernels/meta/call_times.h"
#include "kernels/meta/kernel_call.h"
#include "tools/predict/rates.h"

namespace fsdp::tools {

// Seconds of a call on this machine; nothing where that would take too much time or memory.
using MeasureCall = std::function<std::optional<double>(const meta::KernelCall& call)>;

class CallRates : public meta::CallTimes {
 public:
  // `percentile`: of the time of collectives, where that was measured.
  explicit CallRates(Rates rates, MeasureCall measure = {}, double percentile = 50);

  double kernel_seconds(const meta::KernelCall& call) override;
  double host_kernel_seconds(const meta::KernelCall& call) override;
  bool host_is_device() const override { return rates_.host_memory_bytes_per_s == 0; }
  double host_copy_seconds(int64_t bytes) override;
  double file_seconds(int64_t bytes, bool writes) override;
  double issue_seconds() override { return rates_.issue_us * 1e-6; }
  double interference() const override { return rates_.interference; }
  double collective_seconds(const comm::MetaCollective& collective) const;

  // With the rows that were measured.
  const Rates& rates() const { return rates_; }
  // Of the calls that were asked for: how many had a row, were measured, were estimated.
  struct Sources {
    int64_t rows = 0, measured = 0, estimated = 0;
  };
  const Sources& distinct_calls() const { return sources_; }

 private:
  Rates rates_;
  MeasureCall measure_;
  double percentile_;
  std::map<CallKey, double> known_;  // microseconds, of calls that were asked for
  Sources sources_;
};

// ---- How long a collective takes among ranks that nobody has measured it with. For a group of g
// ranks on m nodes and a buffer of S bytes, of all ranks together:
//
//   steps       (g - m) hops inside a node + (m - 1) between nodes: a ring
//   gather, reduce-scatter, broadcast    latency +   steps +   bytes of the bus / busbw
//   all-reduce                           latency + 2 steps +   bytes of the bus / busbw
//
// Where a group spans nodes an all-reduce takes a tree when the tree has fewer steps: 2 times
// (g/m - 1) hops inside and log2(m) between. Bytes of the bus are nccl-tests': S (g - 1)/g, twice
// that of an all-reduce, S of a broadcast. busbw is the link's, or between nodes that of all ranks
// of the group on a node, if that is less than inside; else what was measured
// (Rates::measured_bus): on straight lines of the logarithms of ranks and busbw.
//
// Sources: NCCL 2.28.9 src/graph/tuning.cc (hops, the tree), nccl-tests doc/PERFORMANCE.md (busbw).
// Not here: collectives at the same time (kernels/meta/meta_backend.h, [Note: one link]).

// Of a group whose nodes have equally many members.
struct GroupPlace {
  int ranks = 1, nodes = 1;
};
// `members`: ranks of the job, in rising order.
GroupPlace place_of(const std::vector<int>& members, int ranks_per_node);

// `percentile`: of the time, among repetitions on a busy fabric: 95 for a plan that is seldom too
// fast. It matters where the percentiles of busbw were measured; between 5 and 95.
double collective_seconds(const Rates& rates, comm::Collective kind, double bytes,
                          const GroupPlace& place, double percentile = 50);

// ---- How long a kernel takes on a device that nobody has measured it on: from its extents, its
// cost and the device's rates. With P the rate of products, A of attention, W of memory (Rates):
//
//   product M x N x K  max(2 M N K / P * (1 + hM/M) (1 + hN/N) (1 + hK/K) / fill, bytes / W) + ramp
//   attention          FLOPs / (A * (128 + hd)/128 * d/(d + hd) * T/(T + hT)) + ramp
//   any other kernel   max(FLOPs / P, bytes / W) + ramp
//
// Each takes kernel_us at least.
//
// `fill` is the share of the multiprocessors that have a tile, of 64 x 64 results and 1,024 of K.
// FLOPs of causal attention are half of the square's, as its cost declares them. h are the extents
// of half of the rate: hM, hN, hK of products; hd of the head size d and hT of the length T of
// attention.
//
// Sources: the form and its constants were fitted on 138 published steps of llm-foundry, and held
// against nanotron, torchtitan, vTrain and LLMQ (tests/fixtures/planning/README.md). The fill was
// not: 1 in all of them. Not here: collectives (above).

double modelled_seconds(const Rates& rates, const meta::KernelCall& call);

}  // namespace fsdp::tools
