// How long a collective takes among ranks that nobody has measured it with. For a group of g ranks
// on m nodes and a buffer of S bytes, of all ranks together:
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
#pragma once

#include "tools/predict/rates.h"

namespace fsdp::tools {

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

}  // namespace fsdp::tools
