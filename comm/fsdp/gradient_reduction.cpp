// The kernels and collectives of one reduction, in order.
#include "comm/fsdp/gradient_reduction.h"

#include "core/layer_args.h"
#include "core/shard_args.h"

namespace fsdp::comm {

EventPtr GradientReduction::run(const ReductionArgs& args) {
  if (policy_.sums_in_order) return sum_in_order(args);
  Backend& backend = runtime_.backend;
  Stream& reduce = runtime_.streams.reduce();
  const int64_t count = layout_.shard_numel();
  const Tensor all = input(args);
  const Tensor slot = all.slice(runtime_.mesh.shard_index() * count, Shape{count});
  Tensor shard = args.shard;
  // Straight into the shard where nothing has to be added or widened.
  Tensor piece = !args.earlier.defined() && slot.dtype() == shard.dtype() ? shard : slot;
  scatter(all, slot, piece);
  // One summand is in the shard already: what came earlier or, averaged in place, the new piece.
  const auto store = [&](Stream& stream) {
    if (args.earlier.defined()) {
      backend.run(stream, AddArgs{shard, args.earlier.data() == shard.data() ? piece : args.earlier,
                                  shard});
    } else if (piece.data() != shard.data()) {
      backend.run(stream, CastArgs{piece, shard});
    }
  };
  if (args.reach == Reach::kAllRanks) {
    Stream& last = average_across_replicas(piece);
    store(last);
    return backend.record(last);
  }
  store(reduce);
  if (args.reach == Reach::kShardGroup) return backend.record(reduce);
  // The all-reduce runs in reduce_dtype; where the shard has another dtype the slot, free by now,
  // holds the sum meanwhile.
  Tensor sum = shard.dtype() == slot.dtype() ? shard : slot;
  if (sum.data() != shard.data()) backend.run(reduce, CastArgs{shard, sum});
  Stream& last = average_across_replicas(sum);
  if (sum.data() != shard.data()) backend.run(last, CastArgs{sum, shard});
  return backend.record(last);
}

EventPtr GradientReduction::sum_in_order(const ReductionArgs& args) {
  Backend& backend = runtime_.backend;
  const Mesh& mesh = runtime_.mesh;
  Stream& reduce = runtime_.streams.reduce();
  const Tensor all = input(args);
  const Shape part = {layout_.shard_numel() / mesh.replicas()};
  const int64_t first = mesh.replica_index() * part.numel();
  OrderedSum sum = {.terms = runtime_.ranks_with_pass.value_or(mesh.ranks()),
                    .columns = mesh.shards()};
  if (args.earlier.defined()) {
    sum.start = args.earlier.slice(first, part);
    if (args.earlier_done) backend.wait(reduce, args.earlier_done);
  }
  mesh.reduce().sum_in_order(reduce, all, args.shard.slice(first, part), sum);
  if (mesh.replicas() == 1 || args.reach == Reach::kShardGroup) return backend.record(reduce);
  Stream& replicas = runtime_.streams.replicas();
  backend.wait(replicas, backend.record(reduce));
  mesh.across_replicas().all_gather(replicas, args.shard);
  return backend.record(replicas);
}

// The unsharded gradients in reduce_dtype, divided, on the reduce stream.
Tensor GradientReduction::input(const ReductionArgs& args) {
  Backend& backend = runtime_.backend;
  Stream& stream = runtime_.streams.reduce();
  if (policy_.detects_overflow) find_overflow(args.unsharded);
  backend.wait(stream, backend.record(backend.compute_stream()));
  Tensor input = args.unsharded;
  if (args.narrow.defined()) {
    backend.wait(stream, args.narrow_free);
    input = args.narrow;
    backend.run(stream, CastArgs{args.unsharded, input});
  }
  divide(stream, input, policy_.division.before);
  return input;
}

// Parameter by parameter: gaps between them hold anything.
void GradientReduction::find_overflow(const Tensor& unsharded) {
  Backend& backend = runtime_.backend;
  const double limit = largest_finite(policy_.param_dtype);
  for (const FlatParameter& p : layout_.parameters()) {
    backend.run(backend.compute_stream(),
                OverflowArgs{.x = unsharded.slice(p.offset, Shape{p.numel}),
                             .limit = limit,
                             .flag = runtime_.overflow});
  }
}

// Slot r of `all` over the ranks, into `piece` on rank r.
void GradientReduction::scatter(const Tensor& all, const Tensor& slot, const Tensor& piece) {
  Stream& stream = runtime_.streams.reduce();
  const bool in_place = piece.data() == slot.data();
  if (runtime_.mesh.shards() > 1 || !in_place) {
    runtime_.mesh.reduce().reduce_scatter(stream, all, piece, policy_.division.op);
  }
}

// Returns the stream on which the average is there.
Stream& GradientReduction::average_across_replicas(Tensor values) {
  Backend& backend = runtime_.backend;
  Stream* stream = &runtime_.streams.reduce();
  if (runtime_.mesh.replicas() > 1) {
    const EventPtr scattered = backend.record(*stream);
    stream = &runtime_.streams.replicas();
    backend.wait(*stream, scattered);
    runtime_.mesh.across_replicas().all_reduce(*stream, values, policy_.division.replica_op);
  }
  divide(*stream, values, policy_.division.after);
  return *stream;
}

void GradientReduction::divide(Stream& stream, Tensor values, double divisor) {
  if (divisor != 1) runtime_.backend.run(stream, DivideArgs{values, divisor});
}

}  // namespace fsdp::comm
