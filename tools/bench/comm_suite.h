// The folder that `fsdp bench comm --suite` leaves: what was measured on what (meta.txt), a row for
// each collective and size (results.csv), and bus bandwidths by size beside their formula
// (summary.txt). Sizes as NVIDIA's guides run nccl-tests between nodes: 32 MiB to 1 GiB, doubling.
// Not here: measuring (comm_bench.h), what is demanded (comm_gate.h).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tools/bench/comm_gate.h"

namespace fsdp::tools {

CommCases suite_cases();    // every collective in f32
CommTiming suite_timing();  // few calls: the largest move gigabytes

struct SuiteMeta {
  std::string date;                   // UTC, of the start
  std::string commit;                 // of this program
  std::vector<std::string> machines;  // by rank: host, and what its memory belongs to
  std::string transport;
  std::string memory;  // of which backend the buffers are
  int threads = 1;     // of a rank
  CommTiming timing;
};

class CommSuite {
 public:
  // Makes the folder and writes meta.txt. Error when the folder has results of another suite, or
  // cannot be made. One rank only.
  CommSuite(std::filesystem::path folder, const SuiteMeta& meta);

  void add(const CommResult& result);  // the files are whole after each one
  void finish(const GateVerdict& verdict) const;

 private:
  std::filesystem::path folder_;
  std::vector<CommResult> results_;
};

// ---- pure parts, for tests ----

std::string meta_text(const SuiteMeta& meta);
std::string csv_of(const std::vector<CommResult>& results);
// A row for each size, a column for each collective, operation, dtype and buffer; GB/s on the bus.
// "-": not measured yet.
std::string bandwidth_table(const std::vector<CommResult>& results);

}  // namespace fsdp::tools
