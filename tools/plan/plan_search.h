// Many jobs for one model and one kind of machine: which of them are worth a run without bytes, and
// the best that fit. All train on the same batch. Not here: one of them (planned_job.h).
//
// [Note: what is left out] Without a run of its own a candidate is left out where another one
// decides: fewer rows a pass already need too much (but for a single pass, which adds up no
// gradients and may need less); or the same job fits and recomputes less. What is
// left out is counted by its reason.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tools/plan/planned_job.h"

namespace fsdp::tools {

enum class Best : uint8_t {
  kCheapest,  // by money, or GPU hours where there is no price
  kFastest,   // by days
};

struct SearchOptions {
  std::vector<int> nodes = {1};
  std::set<std::string> fixed = {};  // keys that stay as the configuration has them
  Best best = Best::kCheapest;
  size_t top = 10;
  size_t threads = 0;  // 0: one for each core
};

struct SearchResult {
  std::vector<PlannedJob> best;      // the best first
  std::vector<PlannedJob> of_nodes;  // of a search with several numbers of nodes: the best of each
  int64_t candidates = 0, runs = 0;
  std::map<std::string, int64_t> left_out;  // why, and how many
};

// `progress`: told how many of how many candidates are decided.
SearchResult search_plans(const PlanQuestion& question, const SearchOptions& options,
                          const std::function<void(int64_t done, int64_t all)>& progress = {});

// One job for each number of nodes, with the configuration as it is. Error where there is none.
std::vector<PlannedJob> plan_each(const PlanQuestion& question, const std::vector<int>& nodes);

// See look_at_latency(); of several jobs, on all cores.
void look_at_latencies(const PlanQuestion& question, std::vector<PlannedJob>& jobs);

// The lower, the better.
double price_of(const PlannedJob& job, Best best);

// ---- Work on all cores. Its parts must not need each other.

// Calls work(i) for all i below `count`, each once, in any order, on so many threads (0: one for
// each core). After the first that throws no new ones begin, and what it threw is thrown here.
void for_each_index(size_t count, const std::function<void(size_t)>& work, size_t threads = 0);

}  // namespace fsdp::tools
