// Which collectives `fsdp bench comm` measures, and what it demands of ranks, transport and
// results. Exit statuses are those of a gate that clusters run before jobs: 44 where nothing valid
// was measured, 46 where the link is too slow. Next: tools/bench/comm_bench.h.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tools/bench/comm_bench.h"
#include "tools/launch/launch.h"

namespace fsdp::tools {

// Every combination of these; names as on the command line.
struct CommCases {
  std::vector<std::string> collectives = {"all_gather", "reduce_scatter", "all_reduce",
                                          "broadcast"};
  std::vector<std::string> ops = {"sum"};  // of reductions
  std::vector<std::string> dtypes = {"f32", "bf16"};
  std::vector<std::string> buffers = {"communicator"};
  int64_t least_bytes = int64_t{64} << 10;  // of the full buffer
  int64_t most_bytes = int64_t{16} << 20;
  int64_t factor = 4;
};
// Sizes least_bytes, least_bytes * factor, ... up to most_bytes. Error when there is none, and for
// averages of integers.
std::vector<CommCase> expand(const CommCases& cases);
std::string_view op_name(const CommCase& what);  // "" where nothing is reduced
std::string_view buffer_name(const CommCase& what);
std::string name_without_size(const CommCase& what);  // "all_reduce sum f32"; plain buffers say so
std::string describe(const CommCase& what);           // "all_reduce sum f32 of 65536 bytes"

struct CommGate {
  int expected_ranks = 0;     // 0: any, but more than one
  double least_gb_per_s = 0;  // of the mean busbw; 0: any
};
constexpr double kUsualBar = 5;  // GB/s
constexpr int kNothingValid = 44;
constexpr int kTooSlow = 46;
// A case or a pair that falls short is measured again, so often in all; its best time counts.
constexpr int kGateTries = 3;

// What carries the data of ranks without NCCL: threads, shared (memory of a host) or mpi. `launch`:
// how they were started. AgreedError when `wanted` is another one; "auto" is any. Collective.
std::string check_transport(RankContext& rank, const LaunchOptions& launch,
                            const std::string& wanted);

struct GateVerdict {
  int status = 0;
  std::string reason;  // when it is not 0
};
GateVerdict check_ranks(const CommGate& gate, int ranks);
GateVerdict check_results(const CommGate& gate, const std::vector<CommResult>& results);

// ---- The folder that `fsdp bench comm --suite` leaves: what was measured on what (meta.txt), a
// row for each collective and size (results.csv), and bus bandwidths by size beside their formula
// (summary.txt). Sizes as NVIDIA's guides run nccl-tests between nodes: 32 MiB to 1 GiB, doubling.

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
