// Memory as tables: what a run will take, phase by phase, and what a run took beside it: what was
// predicted, what the ledger counted, and by how much the process grew (RSS).
#pragma once

#include <array>
#include <string>

#include "core/memory_ledger.h"
#include "tools/predict/meta_run.h"

namespace fsdp::tools {

struct ProcessMemory {
  size_t resident = 0;       // bytes now
  size_t peak_resident = 0;  // since the process started
  size_t addresses = 0;      // now: what ulimit -v limits
};
ProcessMemory process_memory();  // of this process; zeros where /proc does not say

struct MemoryReport {
  MemoryUsage predicted;
  // By what depends on the tokens: fairseq's padding takes a bias of the keys.
  bool at_most = false;
  bool on_gpu = false;               // whose kernels' own workspace has a bound, no prediction
  MemoryUsage ledger;                // of this rank
  MemoryUsage predicted_host, host;  // the same of what is offloaded
  MemoryUsage predicted_file, file;  // and of its file
  size_t formula_states = 0;  // ZeRO's formula for parameters, gradients and optimizer; 0: unknown
  size_t process_ledger = 0;  // sum of the ranks of this process
  int process_ranks = 1;
  size_t resident_growth = 0;  // of this process since before the session was made
  size_t trace = 0;  // of the growth, what the timelines of the ranks take; 0: none recorded
};
// What a device holds besides what is counted: between the blocks of a CPU's heaps; of a GPU, where
// the pool is the driver's, what a kernel takes then, at the most.
const char* rest_name(bool on_gpu);
size_t rest_of(size_t held, size_t counted);

std::string format_memory_table(const MemoryReport& report);  // several lines, MiB

// Peaks by category and phase, and the moment at which most is held.
std::string format_predicted_memory(const MetaRun& run);

}  // namespace fsdp::tools
