// Which pair of hosts, or of ranks, is slow: a collective between each two of them. Disjoint pairs
// run at the same time, as in a tournament where each meets each once, so n ranks need n - 1
// rounds. A pair that looks slow runs again with nothing beside it, and counts by its best run.
// Not here: what the collectives of all ranks reach (comm_bench.h, gate_records.h).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tools/bench/comm_gate.h"

namespace fsdp::tools {

// One of two that meet: a host with its ranks, or one rank.
struct PairSide {
  std::vector<int> ranks;
  std::string host;
};

struct PairResult {
  size_t first = 0, second = 0;  // sides of the table
  bool same_host = false;
  double busbw = 0;  // bytes/s
  int64_t wrong = 0;
  std::string slow;  // why it counts as slow, or that its data is wrong; "": it is well
};

struct PairTable {
  std::vector<PairSide> sides;
  std::vector<PairResult> pairs;  // those of few bytes a second first
};

// A pair is slow below `least` bytes/s, and below this share of the median of pairs of its kind:
// those that share a host, or those that do not.
constexpr double kFarBelowMedian = 0.5;
// So many pairs that look slow run again, the slowest ones.
constexpr size_t kPairsAgain = 16;

// Pairs of hosts, with all their ranks, where a host has several; then pairs of the ranks of the
// two hosts that are slowest to each other. Where no hosts are slow, pairs of all ranks follow only
// for `always_ranks`: n ranks are n - 1 rounds, each with communicators of its own. `least` is for
// pairs that reach what all ranks do: two ranks do not reach that where each host has several ranks
// and network cards. `hosts`: by rank. Collective; the same on every rank.
std::vector<PairTable> bench_pairs(comm::Communicator& world, Backend& backend,
                                   const CommCase& what, const CommTiming& timing,
                                   const std::vector<std::string>& hosts, double least,
                                   bool always_ranks);

std::string describe(const PairTable& table, const PairResult& pair);  // "ranks 0 (a) and 2 (b)"
// The slow pairs of each table with GB/s, and what all of them share. "": none is slow.
std::string slow_pairs_text(const std::vector<PairTable>& tables);
// Of pairs alone: kNothingValid for wrong data, kTooSlow for a slow pair.
GateVerdict check_pairs(const std::vector<PairTable>& tables);

// ---- pure parts, for tests ----

using Meeting = std::pair<size_t, size_t>;
// Rounds in which each of n meets each other once: n - 1 rounds, n of an odd n, where one pauses.
std::vector<std::vector<Meeting>> tournament(size_t n);
// Sets PairResult::slow, and the order.
void judge(PairTable& table, double least);

}  // namespace fsdp::tools
