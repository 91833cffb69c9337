// One reduction of a unit's gradients: what the streams are told between the last kernel of its
// backward and the event after which its shard is an average.
//
//   compute stream   find_overflow           in this rank's own gradients, with detect_overflow
//   reduce stream    cast                    to reduce_dtype, where gradients add up in another one
//                    divide                  by GradientDivision::before
//                    reduce_scatter          slot r of every rank into the shard of rank r
//   replicas stream  all_reduce              of the shard, in hybrid strategies
//                    divide                  by GradientDivision::after
//   the last one     add, cast or nothing    into the shard, where it is not there already
//
// In fixed_order the reduce and the replicas stream have other things to do instead:
//
//   reduce stream    cast                    as above
//                    sum_in_order            of all ranks, onto what came earlier. Of a shard that
//                                            several replicas have each adds up a part
//   replicas stream  all_gather              of the parts, after the last micro-step
//
// Not here: the memory, and when to reduce (unit_gradients.h).
#pragma once

#include "comm/fsdp/options.h"
#include "comm/fsdp/runtime.h"
#include "core/flat_layout.h"

namespace fsdp::comm {

// How far a reduction goes.
enum class Reach : uint8_t {
  kAllRanks,           // the new gradients are averaged over all ranks, then stored or added
  kShardGroup,         // over the shard group; replicas are left for a later micro-step
  kShardGroupThenSum,  // over the shard group; added; the sum is averaged over the replicas
  // In fixed_order kShardGroup adds up only; the other two then gather the parts of the sum.
};

struct ReductionArgs {
  Tensor unsharded;      // (shards * n): this rank's gradients, from the compute stream
  Tensor narrow;         // memory for the same values in reduce_dtype; undefined: not needed
  EventPtr narrow_free;  // since when that memory may be written; may be null
  Tensor shard;          // (n): the result
  Tensor earlier;        // (n): what is added, perhaps the shard itself; undefined: nothing
  EventPtr earlier_done = nullptr;  // since when other replicas do not read `earlier`; may be null
  Reach reach = Reach::kAllRanks;
};

class GradientReduction {
 public:
  // Both outlive this. `layout`: of the trainable parameters.
  GradientReduction(FsdpRuntime& runtime, const UnitPolicy& policy, const FlatLayout& layout)
      : runtime_(runtime), policy_(policy), layout_(layout) {}

  // Enqueues it all; the event says that `shard` is there and that `unsharded` is free.
  EventPtr run(const ReductionArgs& args);

 private:
  EventPtr sum_in_order(const ReductionArgs& args);
  void find_overflow(const Tensor& unsharded);
  Tensor input(const ReductionArgs& args);
  void scatter(const Tensor& all, const Tensor& slot, const Tensor& piece);
  Stream& average_across_replicas(Tensor values);
  void divide(Stream& stream, Tensor values, double divisor);

  FsdpRuntime& runtime_;
  const UnitPolicy& policy_;
  const FlatLayout& layout_;
};

}  // namespace fsdp::comm
