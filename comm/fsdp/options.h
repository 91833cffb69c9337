// The knobs of fully sharded data parallel training, and the rules that follow from them. Each rule
// is said here once; the sharding layer, its memory formula and its timeline ask for it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "core/dtype.h"

namespace fsdp::comm {

// What is sharded over the shard group. Across replica groups everything is replicated.
enum class Strategy : uint8_t {
  kFullShard,         // parameters between their uses, gradients, optimizer state (ZeRO-3)
  kShardGradOp,       // gradients, optimizer state; parameters stay gathered in a step (ZeRO-2)
  kShardOptimizer,    // optimizer state only (ZeRO-1)
  kNoShard,           // nothing (DDP)
  kHybridShard,       // kFullShard inside shard groups, replicated across them (HSDP)
  kHybridShardZero2,  // kShardGradOp inside shard groups, replicated across them
};

// When the gather of the unit that backward needs next is issued.
enum class BackwardPrefetch : uint8_t {
  kPre,   // before the backward of the current unit: overlaps, two units unsharded
  kPost,  // after it, before its reduce: overlaps the reduce only; memory is up to units_in_flight
  kNone,  // when it is needed
};

// What is communicated in the micro-steps before the last of a step with several.
enum class Accumulation : uint8_t {
  kReduceEach,         // everything: gradient memory stays sharded
  kReduceScatterEach,  // reduce-scatter; the all-reduce across replicas waits for the last
  kReduceLast,         // nothing: gradients add up unsharded, in the accumulation dtype
};

constexpr int kGradientBuffers = 2;  // of the arena: one is written, one is being reduced

// What some units do otherwise than the others; absent: as FsdpOptions says.
struct UnitOverride {
  std::string match;  // of units: name, or class of their module; * and [0-3] as in file names
  std::optional<Strategy> strategy = std::nullopt;  // over the same shard groups
  std::optional<bool> reshard_after_forward = std::nullopt;
  std::optional<int> reshard_group_size = std::nullopt;
  std::optional<DType> param_dtype = std::nullopt;  // with the same accumulation dtype
  std::optional<DType> reduce_dtype = std::nullopt;
  std::string place = {};  // where it was written, for errors: "run.yaml:7"
  bool operator==(const UnitOverride&) const = default;
};

struct FsdpOptions {
  Strategy strategy = Strategy::kFullShard;
  int shard_size = 0;  // ranks of a shard group; 0: all. Hybrid strategies need a proper divisor
  // Whether a unit gives its parameters back between forward and backward; absent: as the strategy
  // says. A group size smaller than the shard group: keeps the part of one rank of that many, so
  // that backward gathers inside a smaller group (ZeRO++ hpZ).
  std::optional<bool> reshard_after_forward = std::nullopt;
  int reshard_group_size = 0;  // 0: none

  DType param_dtype = DType::kF32;                     // unsharded parameters, compute and gathers
  DType reduce_dtype = DType::kF32;                    // unsharded gradients and reduces
  std::optional<double> divide_factor = std::nullopt;  // instead of the number of ranks
  bool force_sum = false;       // f32 and bf16: divide after the sum, not in the collective
  bool split_division = false;  // about half the divisor before the sum, as FSDP1 does

  int forward_prefetch = 1;  // gathers issued ahead of the unit whose forward runs; 0: none
  BackwardPrefetch backward_prefetch = BackwardPrefetch::kPre;
  int units_in_flight = 2;      // arena buffers: units gathered or being gathered, besides the root
  bool separate_reduce = true;  // own communicator and stream for reduces
  // Unsharded memory and the gradients' shards are given back when a step needs them no more, and
  // allocated again by the next: the least memory, for allocations in every step. Strategies that
  // keep parameters then keep them until the end of backward, and gather them in every step.
  bool release_arena = false;

  Accumulation accumulation = Accumulation::kReduceEach;
  int micro_steps = 1;  // forward and backward passes per optimizer step
  // A parameter without gradient in a step: stands still, with its step counter; or has a zero one.
  bool absent_is_zero = false;
  // Test every rank's own gradients, before any division, against the range of param_dtype; see
  // FullySharded::overflow. For loss scaling.
  bool detect_overflow = false;
  // Gradients and norms are added in an order that no strategy changes: results are the same bits
  // for all of them. Hybrid strategies then reduce over all ranks at once, and shards are padded to
  // blocks of 1024 elements.
  bool fixed_order = false;

  // Masters become bf16 by stochastic rounding under this seed, where param_dtype is bf16; absent:
  // to nearest. See [Note: rounding by chance] in unit_parameters.h.
  std::optional<uint64_t> rounding_seed = std::nullopt;

  std::vector<UnitOverride> units = {};  // later ones over earlier ones; see unit_options.h
  bool operator==(const FsdpOptions&) const = default;
};

// As in the configuration: "full_shard".
std::string_view choice_name(Strategy strategy);
std::string_view choice_name(BackwardPrefetch prefetch);
std::string_view choice_name(Accumulation accumulation);

bool is_hybrid(Strategy strategy);  // shard groups that are replicas of each other

// Ranks of a shard group of `world` ranks. Error, "fsdp.shard_size: ...", when there are no groups
// of that size.
int shard_group_size(const FsdpOptions& options, int world);
// Ranks that keep the parameters between them from forward to backward (hpZ); 0: none do. Error,
// "fsdp.reshard_group_size: ...", when a shard group has no groups of that size.
int inner_group_size(const FsdpOptions& options, int shards);
// These two, and what else does not fit together; errors begin with "fsdp." and the option's name.
void check_options(const FsdpOptions& options, int world);

// One "name value" for each, but for `units`: they are in the options of every unit. For ranks to
// compare: those that disagree would form groups that fit by chance and train something else.
std::vector<std::string> texts_of(const FsdpOptions& options);

// What every rank holds whole instead of its part, with `shards` ranks in a shard group.
bool keeps_parameters(const FsdpOptions& options, int shards);     // also while they are not used
bool resident_parameters(const FsdpOptions& options, int shards);  // the same, between steps too
bool keeps_gradients(const FsdpOptions& options, int shards);      // until the optimizer's step
bool reduces_last(const FsdpOptions& options);  // micro-steps add up before any reduction

}  // namespace fsdp::comm
