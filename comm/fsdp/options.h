// The knobs of fully sharded data parallel training (FsdpOptions), and what follows from them for
// one unit (UnitPolicy): its row of the table in placement.h, and what the row leaves open. The
// rules stand in options.cpp, once: the sharding layer, its memory formula and its timeline all ask
// for the policy.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/fsdp/placement.h"
#include "core/dtype.h"

namespace fsdp::comm {

struct PlannedUnit;  // comm/fsdp/plan.h

// When the gather of the unit that backward needs next is issued.
enum class BackwardPrefetch : uint8_t {
  kPre,   // before the current unit's backward, which it overlaps; two units are unsharded
  kPost,  // after that backward, before its reduction; it overlaps only the reduction
  kNone,  // when it is needed
};

inline constexpr std::array kBackwardPrefetches = {BackwardPrefetch::kPre, BackwardPrefetch::kPost,
                                                   BackwardPrefetch::kNone};

// What is communicated in the micro-steps before the last of a step with several.
enum class Accumulation : uint8_t {
  kReduceEach,         // everything: gradient memory stays sharded
  kReduceScatterEach,  // reduce-scatter; the all-reduce across replicas waits for the last
  kReduceLast,         // nothing: gradients add up unsharded, in the accumulation dtype
};

inline constexpr std::array kAccumulations = {
    Accumulation::kReduceEach, Accumulation::kReduceScatterEach, Accumulation::kReduceLast};

constexpr int kGradientBuffers = 2;  // of the arena: one is written, one is being reduced

// What the matching units do differently; an absent value: as FsdpOptions says. Its members are the
// keys of an entry of fsdp.units.
struct UnitOverride {
  std::string
      match;  // of units: name, or class of a module of theirs; * and [0-3] as in file names
  std::optional<Strategy> strategy = std::nullopt;  // over the same shard groups
  std::optional<bool> reshard_after_forward = std::nullopt;
  std::optional<int64_t> reshard_group_size = std::nullopt;
  std::optional<DType> param_dtype = std::nullopt;  // with the same accumulation dtype
  std::optional<DType> reduce_dtype = std::nullopt;
  std::string place = {};  // where it was written, for errors: "run.yaml:7"
  bool operator==(const UnitOverride&) const = default;
};

struct FsdpOptions {
  Strategy strategy = Strategy::kFullShard;
  int shard_size = 0;  // ranks of a shard group; 0: all. Hybrid strategies need a proper divisor
  // Whether a unit gives its parameters back between forward and backward; absent: as the strategy
  // says. reshard_group_size n, smaller than the shard group: each rank keeps 1/n of the unit, and
  // backward gathers among n ranks (ZeRO++ hpZ).
  std::optional<bool> reshard_after_forward = std::nullopt;
  int reshard_group_size = 0;  // 0: none

  DType param_dtype = DType::kF32;   // unsharded parameters, compute and gathers
  DType reduce_dtype = DType::kF32;  // unsharded gradients and reduces
  // Of the values that the optimizer updates; absent: the accumulation dtype of param_dtype. One of
  // 16 bits leaves nothing but the rounded values between two steps; see optim/README.md.
  std::optional<DType> master_dtype = std::nullopt;
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
  // In the backward of the last micro-step a unit is updated as soon as its gradient is reduced
  // (FullySharded::set_update), and in steps of one micro-step the gradient's memory goes back
  // then. For updates that need to know nothing of the other units' gradients.
  bool update_in_backward = false;

  Accumulation accumulation = Accumulation::kReduceEach;
  int micro_steps = 1;   // forward and backward passes per optimizer step
  bool training = true;  // false: forward passes only, without memory for gradients
  // A parameter without a gradient in a step; false: it and its step counter stand still.
  bool absent_is_zero = false;
  // Test every rank's own gradients, before any division, against the range of param_dtype; see
  // FullySharded::overflow. For loss scaling.
  bool detect_overflow = false;
  // Gradients are summed, not averaged, one rank's after the other's and one micro-step's after the
  // other's, in the accumulation dtype. Who deals pass p of a step to rank p % ranks in micro-step
  // p / ranks gets the sum of passes 0, 1, 2, ..., the same bits for every number of ranks and
  // every strategy. Norms are added by blocks of 1024 elements, to which shards are padded.
  bool fixed_order = false;

  // Masters become bf16 by stochastic rounding under this seed, where param_dtype is bf16 and
  // masters are f32; absent: to nearest. See [Note: rounding by chance] in home/shard_home.h.
  std::optional<uint64_t> rounding_seed = std::nullopt;

  // `host`: the other backend, which holds what is offloaded; it outlives the model. Null without
  // offload. `file`: a third one with offload: nvme, which holds it in the host's place; else null.
  // [Note: offload] in home/host_home.h.
  Offload offload = Offload::kNone;
  Backend* host = nullptr;
  Backend* file = nullptr;

  std::vector<UnitOverride> units = {};  // later entries override earlier ones
  bool operator==(const FsdpOptions&) const = default;
};

// As in the configuration: "pre".
std::string_view choice_name(BackwardPrefetch prefetch);
std::string_view choice_name(Accumulation accumulation);

// Whether the device has no memory for parameters that are not gathered.
constexpr bool offloads_all(Offload offload) { return row_of(offload).parameters != Home::kDevice; }
// Whether a unit's gradient has memory only from its backward to its update.
bool gives_gradients_back(const FsdpOptions& options);
bool is_hybrid(Strategy strategy);  // shard groups that are replicas of each other

// Ranks of a shard group of `world` ranks. Error, "fsdp.shard_size: ...", when there are no groups
// of that size.
int shard_group_size(const FsdpOptions& options, int world);
struct GroupSizes {
  int shards = 1;    // ranks of a shard group
  int replicas = 1;  // shard groups
};
GroupSizes group_sizes(const FsdpOptions& options, int world);
// Everything that does not fit together; errors begin with "fsdp." and the option's name.
void check_options(const FsdpOptions& options, int world);

// One "name value" per option, for ranks to compare. Ranks with different options could form groups
// that happen to fit, and would train something else.
std::vector<std::string> texts_of(const FsdpOptions& options);

// Where the division of a gradient average happens: gradient /= before; reduce with `op` over the
// shards, then with `replica_op` over the replicas; result /= after.
struct GradientDivision {
  double before = 1;
  double after = 1;
  ReduceOp op = ReduceOp::kSum;
  ReduceOp replica_op = ReduceOp::kSum;
  bool operator==(const GradientDivision&) const = default;
};

// fixed_order: nothing is divided. f32, bf16: the collectives average; with a divide_factor they
// average over the shards if it is their number, else the terms are divided before the sum. f16 and
// f64: the divisor is split around the sum, about sqrt each way, so that neither the terms
// underflow nor the sum overflows. Source: PyTorch FSDP2, _fsdp_collectives.py
// `_get_gradient_divide_factors`, and FSDP1's default_hooks.py. One difference: PyTorch's
// collective (NCCL's PREMUL_SUM) multiplies the terms by the rounded 1 / factor; here they are
// divided. That is the same for powers of two, else one rounding less.
GradientDivision gradient_division(const FsdpOptions& options, GroupSizes groups);

// What one unit does, decided once, when it is set up.
struct UnitPolicy {
  Placements at;        // its row of the table
  int inner_group = 0;  // ranks of one, where the turn finds kInnerShard

  // ---- Dtypes ----
  DType param_dtype = DType::kF32;                       // unsharded, in compute and in gathers
  DType master_dtype = DType::kF32;                      // of trainable shards; frozen: param_dtype
  std::optional<uint64_t> rounding_seed = std::nullopt;  // masters are rounded by chance; see above
  DType sum_dtype = DType::kF32;       // of gradients' shards, and of what is added up
  DType gradient_dtype = DType::kF32;  // of unsharded gradients
  DType reduce_dtype = DType::kF32;    // of gradients in collectives

  // ---- Reductions ----
  bool averages_in_place = false;  // the unsharded gradients become the shard: one buffer
  bool sums_in_order = false;      // one chain over micro-steps and all ranks: fixed_order
  int parts_of_shard = 1;          // each added up by another replica: with sums_in_order
  GradientDivision division = {};
  bool detects_overflow = false;

  // ---- Memory ----
  bool releases_memory = false;  // what a step needs no more is given back: release_arena
  int64_t alignment = 0;         // of parameters in the flat buffer, elements

  // ---- What follows ----
  // The unit stays gathered from one micro-step to the next.
  bool keeps_parameters() const { return at.parameters.pause == Placement::kWhole; }
  // The unit's buffer is its own, and keeps its values until the next update.
  bool resident() const {
    return at.parameters.at_rest == Placement::kWhole || (keeps_parameters() && !releases_memory);
  }
  // The unsharded gradients have memory of their own, until the optimizer's step.
  bool keeps_gradients() const { return at.gradients.at_rest == Placement::kWhole; }
  // Nothing of a gradient stays once the unit is updated, which happens in backward.
  bool gives_gradients_back() const { return at.gradients.at_rest == Placement::kNowhere; }
  // A reduction needs a second buffer.
  bool narrows_gradients() const { return gradient_dtype != reduce_dtype; }

  bool operator==(const UnitPolicy&) const = default;
};

// Of a unit without overrides. `awaits_backward`: PlannedUnit's, of the root true.
UnitPolicy unit_policy(const FsdpOptions& options, GroupSizes groups, bool awaits_backward);

// One for each unit of a plan, with the overrides that match it. Parameters and gradients may be
// kept or given back by each unit as it likes, since all of them are sharded over the same groups.
// Other groups for one unit are refused: the norm of the gradients and the agreement on overflow
// ask one mesh, and replicas of a single unit would count several times. A unit that computes in
// another dtype than the unit around it casts the activations that enter it to its param_dtype and
// those that leave it back (core/module.h); gradients take the same way. Masters are in the
// accumulation dtype of all units, as are position tables.
// Error, "run.yaml:7: fsdp.units: ...", when an override matches no unit that has parameters (lists
// those there are) or asks for what a single unit cannot have.
std::vector<UnitPolicy> unit_policies(const FsdpOptions& options,
                                      const std::vector<PlannedUnit>& units, GroupSizes groups);

}  // namespace fsdp::comm
