// The table that the sharding layer follows: where the parameters, the gradients and the optimizer
// state of a unit are at each moment of a step. A strategy is a row. unit_policy() (options.h)
// takes the row, changes what an option asks for, and leaves it in UnitPolicy::at, where the
// schedule reads it. A collective is what leads from one placement to the next; README.md lists
// these.
//
// Not here: dtypes, buffers and divisions (options.h).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace fsdp::comm {

// Of a unit, over the ranks of a shard group. Across replicas all but the gradient is replicated.
//
// An optimizer that needs whole matrices could own each matrix on one rank. That is one more
// placement, kWholeMatrix, in the column `state` of a row. The gradient is then reduced to the
// owner instead of scattered, and the parameters are broadcast from there instead of gathered.
enum class Placement : uint8_t {
  kNowhere,     // nothing, and no memory for it
  kWhole,       // all of it, the same on every rank
  kPartial,     // all of it, but of this rank's rows alone: it has still to be summed
  kFlatShard,   // slot r of the unit's flat buffer, on rank r
  kInnerShard,  // the same within an inner group, which is a part of the shard group (hpZ)
};

// In a unit's own forward and backward its parameters are whole under every strategy. Its backward
// leaves partial gradients. These are the other moments.
struct Placements {
  struct Parameters {
    Placement at_rest;  // between two steps
    Placement turn;     // between the unit's forward and its backward
    Placement pause;    // between a micro-step and the next
    bool operator==(const Parameters&) const = default;
  } parameters;
  struct Gradients {
    Placement at_rest;  // the memory that stays
    Placement pause;
    Placement update;                            // what the optimizer reads
    Placement pause_across = Placement::kWhole;  // the pause, over the replicas
    bool operator==(const Gradients&) const = default;
  } gradients;
  Placement state;  // masters and the optimizer's state, at all moments
  bool operator==(const Placements&) const = default;
};

enum class Strategy : uint8_t {
  kFullShard,
  kShardGradOp,
  kShardOptimizer,
  kNoShard,
  kHybridShard,
  kHybridShardZero2
};

// Which ranks form a shard group. The groups are replicas of each other.
enum class ShardGroups : uint8_t {
  kAllRanks,  // one group
  kSeveral,   // of FsdpOptions::shard_size ranks
  kEachRank,  // a rank is a group
};

struct StrategyRow {
  Strategy strategy;
  std::string_view name;  // as in the configuration
  ShardGroups groups;
  Placements at;
};

namespace rows {

inline constexpr auto kWhole = Placement::kWhole;
inline constexpr auto kShard = Placement::kFlatShard;

//                                       parameters:               gradients:                state
//                                       at rest, turn, pause      at rest, pause, update
inline constexpr Placements kZero3 = {{kShard, kShard, kShard}, {kShard, kShard, kShard}, kShard};
inline constexpr Placements kZero2 = {{kShard, kWhole, kWhole}, {kShard, kShard, kShard}, kShard};
inline constexpr Placements kZero1 = {{kShard, kWhole, kWhole}, {kWhole, kShard, kShard}, kShard};
inline constexpr Placements kDdp = {{kWhole, kWhole, kWhole}, {kWhole, kWhole, kWhole}, kWhole};

}  // namespace rows

inline constexpr std::array<StrategyRow, 6> kStrategyRows = {{
    {Strategy::kFullShard, "full_shard", ShardGroups::kAllRanks, rows::kZero3},
    {Strategy::kShardGradOp, "shard_grad_op", ShardGroups::kAllRanks, rows::kZero2},
    {Strategy::kShardOptimizer, "shard_optimizer", ShardGroups::kAllRanks, rows::kZero1},
    {Strategy::kNoShard, "no_shard", ShardGroups::kEachRank, rows::kDdp},
    {Strategy::kHybridShard, "hybrid_shard", ShardGroups::kSeveral, rows::kZero3},
    {Strategy::kHybridShardZero2, "hybrid_shard_zero2", ShardGroups::kSeveral, rows::kZero2},
}};

// Which device has the memory of what is not whole. kFile: the host has a few buffers.
enum class Home : uint8_t { kDevice, kHost, kFile };

enum class Offload : uint8_t { kNone, kOptimizer, kAll, kNvme };

struct OffloadRow {
  Offload offload;
  std::string_view name;
  Home parameters;  // kHost, kFile: they come to the device for a unit's use, and go after it
  Home gradients;   // between their reductions
  Home state;
};

inline constexpr std::array<OffloadRow, 4> kOffloadRows = {{
    {Offload::kNone, "none", Home::kDevice, Home::kDevice, Home::kDevice},
    {Offload::kOptimizer, "optimizer", Home::kDevice, Home::kDevice, Home::kHost},
    {Offload::kAll, "all", Home::kHost, Home::kHost, Home::kHost},
    {Offload::kNvme, "nvme", Home::kFile, Home::kFile, Home::kFile},
}};

constexpr const StrategyRow& row_of(Strategy strategy) {
  return kStrategyRows.at(static_cast<size_t>(strategy));
}
constexpr const OffloadRow& row_of(Offload offload) {
  return kOffloadRows.at(static_cast<size_t>(offload));
}

// As in the configuration.
constexpr std::string_view choice_name(Strategy strategy) { return row_of(strategy).name; }
constexpr std::string_view choice_name(Offload offload) { return row_of(offload).name; }

inline constexpr auto kStrategies = [] {
  std::array<Strategy, kStrategyRows.size()> all = {};
  for (size_t i = 0; i < all.size(); ++i) all[i] = kStrategyRows[i].strategy;
  return all;
}();
inline constexpr auto kOffloads = [] {
  std::array<Offload, kOffloadRows.size()> all = {};
  for (size_t i = 0; i < all.size(); ++i) all[i] = kOffloadRows[i].offload;
  return all;
}();

}  // namespace fsdp::comm
