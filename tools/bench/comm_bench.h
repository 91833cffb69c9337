// Times collectives of a transport and checks their data. Bandwidths as NVIDIA's nccl-tests define
// them (its doc/PERFORMANCE.md): S is the size of the full buffer, t the time of one call,
//   algbw = S / t        busbw = algbw * bus_factor
// and the factor makes busbw comparable with what one rank's link carries, whatever their number.
// Not here: what the result is held against (comm_gate.h), printing
// (tools/commands/bench_comm.cpp).
#pragma once

#include <functional>
#include <vector>

#include "comm/communicator.h"
#include "tools/bench/statistics.h"
#include "tools/predict/call_rates.h"

namespace fsdp::tools {

struct CommCase {
  comm::Collective collective = comm::Collective::kAllReduce;
  comm::ReduceOp op = comm::ReduceOp::kSum;  // of reduce_scatter and all_reduce
  DType dtype = DType::kF32;
  int64_t bytes = 0;       // of the full buffer; whole elements of whole slots are made of it
  bool registered = true;  // memory that the communicator made (CommBuffer), or plain one
};

struct CommTiming {
  int64_t rounds = 5;
  int64_t calls = 4;  // of a round, one after the other without waiting
};

struct CommResult {
  CommCase what;      // with the bytes that were used
  Spread seconds;     // of one call on the slowest rank; over rounds
  int64_t wrong = 0;  // elements that differ, over all ranks
  int ranks = 1;

  double algbw() const { return static_cast<double>(what.bytes) / seconds.median; }  // bytes/s
  double busbw() const;
};

// The bytes of `what` that are whole elements of whole slots of so many ranks; one element at
// least.
int64_t whole_slots(const CommCase& what, int ranks);

// all_reduce 2 (n - 1) / n, all_gather and reduce_scatter (n - 1) / n, broadcast 1.
double bus_factor(comm::Collective collective, int ranks);

// Collective; the same result on every rank. Runs on the backend's compute stream. In place, as the
// sharding layer does; broadcasts come from the last rank. Average needs a floating dtype.
CommResult bench_collective(comm::Communicator& world, Backend& backend, const CommCase& what,
                            const CommTiming& timing);

// One after the other; `done` gets each result at once. Collective.
std::vector<CommResult> bench_collectives(comm::Communicator& world, Backend& backend,
                                          const std::vector<CommCase>& cases,
                                          const CommTiming& timing,
                                          const std::function<void(const CommResult&)>& done);

// Mean over all results, as nccl-tests' "Avg bus bandwidth"; bytes/s. 0 without results.
double mean_busbw(const std::vector<CommResult>& results);

// ---- The link of a file of rates (tools/predict/rates_file.h), from collectives that were
// measured. Not here: what a collective takes by such a link (tools/predict/call_rates.h).

// Latency and bandwidth with which `seconds = latency + bytes of the bus / bandwidth` comes nearest
// to the medians: the least sum of squared relative errors, so that small calls count as much as
// large ones. A latency below 0 becomes 0. Error when all calls move the same bytes, or when larger
// calls take no longer.
LinkRate fit_link(const std::vector<CommResult>& results);

// Sets the link of `rates` that ranks with these hosts use: inside_node where all of them share a
// host; else between_nodes, of which a host with n ranks has n (CallRates::collective_seconds), and
// error when hosts have different numbers of ranks. Returns the key that was set. A busbw that
// others measured for the machine goes, and so does the source of the link.
std::string set_link(Rates& rates, LinkRate link, const std::vector<std::string>& hosts);

}  // namespace fsdp::tools
