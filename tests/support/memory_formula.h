// How many bytes sharded training holds, as formulas over the flat layout of its units. Exact: the
// ledger of a run agrees to the byte (tests/comm/fsdp/memory_formula_test.cpp). N ranks in a shard group; a
// unit has S_u elements per shard (padding included), N S_u unsharded; m, p, r: bytes of an element
// of the master, of the unsharded parameters and of the unsharded gradients (a: m where micro-steps
// add up unsharded, else r). R is the root, B the blocks; f of them are unsharded at a time. Units
// inside units: a term like that of B for every level of nesting.
//
// Parameters given back between uses (full_shard, hybrid_shard; N > 1):
//   parameter shard      m sum S_u
//   unsharded parameter  p N (S_R + f max_B S_u)                 the arena
// Parameters kept (the other strategies, reshard_after_forward: false, or N = 1):
//   parameter shard      m sum S_u      unsharded p N sum S_u    p = m: one holds the other
// reshard_group_size g:  unsharded parameter + p N sum_B S_u / g
// Gradients reduced when a unit's backward ends (full_shard, shard_grad_op, their hybrids):
//   gradient             m sum S_u + r N (S_R + 2 max_B S_u)
// Gradients kept unsharded (no_shard, shard_optimizer, reduce_last):
//   gradient             a N sum S_u + m sum S_u                 one buffer where nothing differs;
//                        + r N (S_R + 2 max_B S_u) if a != r
// optimizer state        k m sum S_u, and counters; k: values that the optimizer keeps
//                        of an element (2; sgd: 0, with momentum 1)
//
// Units with options of their own (FsdpOptions::units) each have the terms of theirs; the
// arena then is as wide as the widest unit that needs it, and f and 2 are no more than there are of
// them. A frozen parameter has a master of p bytes, no gradient and no optimizer state. With
// release_arena the arena is there only at the peak, and has at every level of nesting f buffers
// more than there are units whose parameters are kept.
// Where a is less than m, some gradients are made in m bytes first and then rounded:
//   reduce_dtype = param_dtype   + m V hidden   the head's, when it is tied to the embedding or
//                                               computed in several pieces
//                                + m V        and its bias's, when it has one: not tied, and gone
//                                               when the head's backward is
//   another reduce_dtype         + m max        of every parameter in turn; beside a tied head's,
//                                               but for the position table, which is the last
// Every term is rounded up as the ledger does. One case is an upper bound (upper_bounds): with
// release_arena a wide gradient may be gone again before the last buffers and shards are allocated,
// by the order of the model's ops; the sum has both. Not here: what a second backward of a
// micro-step sets aside where the average is made in place (one buffer above: as many bytes again),
// since training has one backward in each; activations and workspace (the ledger measures them);
// how it
// is printed.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "comm/fsdp/fully_sharded.h"
#include "core/memory_ledger.h"
#include "models/config.h"
#include "optim/optimizer.h"
#include "tools/predict/unit_table.h"

namespace fsdp::tools {

struct UnitExtent {
  std::vector<SegmentExtent> segments;
  int depth = 0;  // 0: the root
  comm::UnitPolicy policy = {};
};

// Gradients before they are rounded to a narrower dtype, in the accumulation dtype: bytes.
struct WideGradients {
  size_t head = 0;
  bool head_stays = false;  // tied: until the embedding's part has come
  size_t head_bias = 0;     // beside the head's
  size_t other = 0;         // the most that any other op makes at a time
  size_t positions = 0;     // the position table's: after the embedding's part
  size_t peak() const;      // together
};
// Adds those of a unit. `trained`: its trainable parameters; `positions`: of a forward of this
// rank, rows x length.
void add_wide_gradients(const std::vector<const Parameter*>& trained,
                        const comm::UnitPolicy& policy, const models::ModelConfig& model,
                        int64_t positions, WideGradients& wide);

struct MemoryPlan {
  std::vector<UnitExtent> units;  // root first; those without parameters left out
  int shards = 1;                 // N
  comm::FsdpOptions options;      // of all
  WideGradients wide;
  int64_t norm_blocks = 0;  // of all units, with fixed_order
  std::optional<optim::OptimizerOptions> optimizer = optim::OptimizerOptions{};  // empty: no state
};
MemoryPlan memory_plan(const comm::FullySharded& sharded, const models::ModelConfig& model,
                       const std::optional<optim::OptimizerOptions>& optimizer, int64_t positions);

// By category; 0 for those without a formula.
std::array<size_t, kMemoryCategories> predicted_memory(const MemoryPlan& plan);
bool has_formula(MemoryCategory category);
// Where the peak may be less than predicted, by the wide gradients at most; elsewhere it is equal.
std::array<bool, kMemoryCategories> upper_bounds(const MemoryPlan& plan);

}  // namespace fsdp::tools
