// The rules; contract: options.h.
#include "comm/fsdp/options.h"

#include <array>

namespace fsdp::comm {

std::string_view choice_name(Strategy strategy) {
  constexpr std::array<std::string_view, 6> kNames = {"full_shard",      "shard_grad_op",
                                                      "shard_optimizer", "no_shard",
                                                      "hybrid_shard",    "hybrid_shard_zero2"};
  return kNames.at(static_cast<size_t>(strategy));
}

std::string_view choice_name(BackwardPrefetch prefetch) {
  constexpr std::array<std::string_view, 3> kNames = {"pre", "post", "none"};
  return kNames.at(static_cast<size_t>(prefetch));
}

std::string_view choice_name(Accumulation accumulation) {
  constexpr std::array<std::string_view, 3> kNames = {"reduce_each", "reduce_scatter_each",
                                                      "reduce_last"};
  return kNames.at(static_cast<size_t>(accumulation));
}

bool is_hybrid(Strategy strategy) {
  return strategy == Strategy::kHybridShard || strategy == Strategy::kHybridShardZero2;
}

int shard_group_size(const FsdpOptions& options, int world) {
  if (options.strategy == Strategy::kNoShard) return 1;
  if (!is_hybrid(options.strategy)) {
    FSDP_CHECK(options.shard_size == 0 || options.shard_size == world,
               "fsdp.shard_size: expected 0 unless the strategy is hybrid, got {}",
               options.shard_size);
    return world;
  }
  FSDP_CHECK(options.shard_size > 0,
             "fsdp.shard_size: a hybrid strategy needs the number of ranks of a shard group");
  FSDP_CHECK(world % options.shard_size == 0,
             "fsdp.shard_size: expected a divisor of {} ranks, got {}", world, options.shard_size);
  return options.shard_size;
}

int inner_group_size(const FsdpOptions& options, int shards) {
  const int size = options.reshard_group_size;
  if (size == 0 || shards == 1) return 0;  // one rank tries out what several will run
  FSDP_CHECK(
      size > 0 && shards % size == 0,
      "fsdp.reshard_group_size: expected a divisor of the ranks of a shard group, {}, got {}",
      shards, size);
  return size == shards || keeps_parameters(options, shards) ? 0 : size;
}

void check_options(const FsdpOptions& options, int world) {
  const int shards = shard_group_size(options, world);
  inner_group_size(options, shards);
  FSDP_CHECK(!options.fixed_order || shards == world ||
                 options.accumulation != Accumulation::kReduceScatterEach,
             "fsdp.fixed_order: accumulation: reduce_scatter_each adds micro-steps before "
             "replicas; expected another one");
  FSDP_CHECK(
      !options.force_sum || !options.split_division,
      "fsdp.split_division: divides before the sum and after it, fsdp.force_sum only after it; "
      "expected one of them");
  FSDP_CHECK(options.units_in_flight >= 1, "fsdp.units_in_flight: expected at least 1, got {}",
             options.units_in_flight);
}

std::vector<std::string> texts_of(const FsdpOptions& options) {
  // All of them by name: one more does not compile until it is told to the other ranks.
  const auto& [strategy, shard_size, reshard_after_forward, reshard_group_size, param_dtype,
               reduce_dtype, divide_factor, force_sum, split_division, forward_prefetch,
               backward_prefetch, units_in_flight, separate_reduce, release_arena, accumulation,
               micro_steps, absent_is_zero, detect_overflow, fixed_order, rounding_seed, units] =
      options;
  return {
      fmt::format("strategy {}", choice_name(strategy)),
      fmt::format("shard_size {}", shard_size),
      fmt::format("reshard_after_forward {}",
                  reshard_after_forward ? *reshard_after_forward ? "true" : "false" : "default"),
      fmt::format("reshard_group_size {}", reshard_group_size),
      fmt::format("param_dtype {}", name_of(param_dtype)),
      fmt::format("reduce_dtype {}", name_of(reduce_dtype)),
      fmt::format("divide_factor {}",
                  divide_factor ? fmt::format("{}", *divide_factor) : "default"),
      fmt::format("force_sum {}", force_sum),
      fmt::format("split_division {}", split_division),
      fmt::format("forward_prefetch {}", forward_prefetch),
      fmt::format("backward_prefetch {}", choice_name(backward_prefetch)),
      fmt::format("units_in_flight {}", units_in_flight),
      fmt::format("separate_reduce {}", separate_reduce),
      fmt::format("release_arena {}", release_arena),
      fmt::format("accumulation {}", choice_name(accumulation)),
      fmt::format("micro_steps {}", micro_steps),
      fmt::format("absent_is_zero {}", absent_is_zero),
      fmt::format("detect_overflow {}", detect_overflow),
      fmt::format("fixed_order {}", fixed_order),
      fmt::format("rounding_seed {}", rounding_seed ? fmt::format("{}", *rounding_seed) : "none"),
  };
}

bool keeps_parameters(const FsdpOptions& options, int shards) {
  const bool gives_back =
      options.strategy == Strategy::kFullShard || options.strategy == Strategy::kHybridShard;
  return shards == 1 || !options.reshard_after_forward.value_or(gives_back);
}

bool resident_parameters(const FsdpOptions& options, int shards) {
  return shards == 1 || (keeps_parameters(options, shards) && !options.release_arena);
}

bool keeps_gradients(const FsdpOptions& options, int shards) {
  return shards == 1 || options.strategy == Strategy::kShardOptimizer || reduces_last(options);
}

bool reduces_last(const FsdpOptions& options) {
  return options.micro_steps > 1 && options.accumulation == Accumulation::kReduceLast;
}

}  // namespace fsdp::comm
