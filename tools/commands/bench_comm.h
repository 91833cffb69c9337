// What `fsdp bench comm` was asked for, and what does it.
// Read next: bench_comm.cpp (the options), bench_comm_run.cpp.
#pragma once

#include <string>

#include "tools/bench/comm_bench.h"
#include "tools/bench/comm_gate.h"
#include "tools/launch/launch.h"

namespace fsdp::tools {

struct CommOptions {
  LaunchOptions launch;
  std::string transport = "auto";
  CommCases cases;
  CommTiming timing;
  CommGate gate;
  std::string gate_file;  // "": none
  double gate_share = 0.8;
  bool update = false;       // write gate_file instead of holding results to it
  bool pairs = false;        // instead of collectives of all ranks
  std::string update_rates;  // "": no file
  std::string suite;         // folder; "": none
  bool json = false;
};

// Returns the status of the process. Collective.
int run_bench_comm(const CommOptions& options, RankContext& rank);

}  // namespace fsdp::tools
