// How many bytes sharded training holds, as formulas over the flat layout of its units. Exact: the
// ledger of a run agrees to the byte, and `fsdp train` prints both. N ranks, unit u of S_u elements
// per shard (padding included), N S_u unsharded; m, p, r: bytes of an element of the master, of the
// unsharded parameters and of the unsharded gradients. Units: the root R and the blocks B; f, here
// 2, of them are unsharded at a time (at most as many as there are).
//
//                       full_shard, N > 1                        no_shard, or N = 1
//   parameter shard     m sum S_u                                the same (S_u is all of u)
//   unsharded parameter p N (S_R + f max_B S_u)  (the arena)     p sum S_u if p != m, else 0
//   gradient            m sum S_u + r N (S_R + 2 max_B S_u)      r sum S_u (+ m sum S_u if r != m)
//   optimizer state     2 m sum S_u, and counters
//
// Where r is a 16-bit type, the head's gradient adds up in pieces in m bytes (+ m V hidden) first.
// Every term is rounded up as the ledger does. Not here: other strategies and frozen parameters;
// activations and workspace (the ledger measures them); the table (memory_report.h).
#pragma once

#include <array>
#include <vector>

#include "comm/fsdp/fully_sharded.h"
#include "core/memory_ledger.h"
#include "models/config.h"

namespace fsdp::tools {

struct UnitExtent {
  int64_t shard_numel = 0;
  int64_t shards = 1;
  int64_t parameters = 0;
};

struct MemoryPlan {
  std::vector<UnitExtent> units;  // root first
  bool resident = false;          // no_shard, or one rank
  int64_t units_in_flight = 2;
  size_t master_bytes = 4;  // of an element
  size_t parameter_bytes = 4;
  size_t gradient_bytes = 4;
  int64_t head_numel = 0;  // V x hidden
  bool training = true;    // with optimizer state
};
MemoryPlan memory_plan(const comm::FullySharded& sharded, const models::ModelConfig& model,
                       bool training);

// By category; 0 for those without a formula.
std::array<size_t, kMemoryCategories> predicted_memory(const MemoryPlan& plan);
bool has_formula(MemoryCategory category);

}  // namespace fsdp::tools
