// Global norm over shards: local power sums, one all-reduce, the coefficient on the device.
#include "optim/clip.h"

#include <cmath>

#include "core/copy_in_order.h"
#include "core/layer_args.h"
#include "core/shard_args.h"

namespace fsdp::optim {
namespace {

void write_one(const Tensor& scalar) {  // f32 or f64
  const float narrow = 1;
  const double wide = 1;
  scalar.write(scalar.dtype() == DType::kF64 ? static_cast<const void*>(&wide) : &narrow);
}

}  // namespace

Clipper::Clipper(const std::vector<OptimizerShard>& shards, comm::Communicator* group,
                 double max_norm, double power, Backend* decides, bool one_by_one)
    : group_(group), max_norm_(max_norm), power_(power), one_by_one_(one_by_one) {
  Backend& gradients = backend_of(shards, "clip");
  Backend& backend = decides ? *decides : gradients;
  FSDP_CHECK(
      !one_by_one || max_norm <= 0,
      "[clip] max_norm: updates in backward come before the norm is known, so nothing can be "
      "clipped; expected 0, got {}",
      max_norm);
  FSDP_CHECK(power >= 1, "[clip] norm type: expected 1 or more, or infinity, got {}", power);
  const auto zeros = [](Backend& place, Shape shape, DType dtype) {
    return Tensor::zeros(place, shape, dtype, MemoryCategory::kOptimizerState);
  };
  int64_t blocks = 0;
  for (const OptimizerShard& shard : shards) {
    Part& part = parts_.emplace_back();
    part.gradient = shard.gradient;
    part.access = shard.access;
    part.spans = shard.layout.spans(shard.index);
    if (!shard.norm_by_blocks) continue;
    part.first_blocks = shard.layout.first_blocks(shard.index);
    part.blocks = shard.layout.blocks();
  }
  for (const bool of_root : {true, false}) {  // see OptimizerShard::norm_by_blocks
    for (size_t i = 0; i < shards.size(); ++i) {
      if (shards[i].of_root != of_root) continue;
      parts_[i].first_sum = blocks;
      blocks += parts_[i].blocks;
    }
  }
  by_blocks_ = blocks > 0;
  const Shape sums = by_blocks_ ? Shape{blocks} : Shape{};
  const DType wide = accumulation_dtype(shards[0].gradient.dtype());
  norm_ = zeros(backend, {}, DType::kF64);
  coefficient_ = zeros(backend, {}, wide);
  skip_ = zeros(backend, {}, DType::kI32);
  sums_ = all_sums_ = zeros(gradients, sums, DType::kF64);
  for_optimizer_ = {coefficient_, skip_};
  if (is_apart()) all_sums_ = zeros(backend, sums, DType::kF64);
  if (is_apart() || one_by_one) {
    for_optimizer_ = {zeros(gradients, {}, wide), zeros(gradients, {}, DType::kI32)};
  }
  if (one_by_one) {
    write_one(for_optimizer_.coefficient);
    if (!by_blocks_) {
      shard_sums_ = zeros(gradients, {static_cast<int64_t>(shards.size())}, DType::kF64);
    }
  }
  power_sum_ = by_blocks_ ? zeros(backend, {}, DType::kF64) : all_sums_;
}

// Every block has its place, whichever rank holds it; those of other ranks are zero.
void Clipper::sum_blocks(const Part& part) {
  Backend& backend = sums_.backend();
  Stream& stream = backend.compute_stream();
  Tensor out = sums_.slice(part.first_sum, Shape{part.blocks});
  part.access->begin(ShardAccess::Use::kNorm);
  backend.run(stream, PowerSumArgs{.x = part.gradient,
                                   .spans = part.spans,
                                   .power = power_,
                                   .out = out,
                                   .first_blocks = &part.first_blocks});
  part.access->end(ShardAccess::Use::kNorm);
}

void Clipper::sum_shard(const Part& part, Tensor out, bool accumulate) {
  Backend& backend = sums_.backend();
  part.access->begin(ShardAccess::Use::kNorm);
  backend.run(backend.compute_stream(), PowerSumArgs{.x = part.gradient,
                                                     .spans = part.spans,
                                                     .power = power_,
                                                     .out = out,
                                                     .accumulate = accumulate});
  part.access->end(ShardAccess::Use::kNorm);
}

void Clipper::measure_shard(size_t index) {
  const Part& part = parts_.at(index);
  if (!by_blocks_) {
    return sum_shard(part, shard_sums_.slice(static_cast<int64_t>(index), {}), false);
  }
  clear_sums(part.first_sum, part.blocks);
  sum_blocks(part);
}

// In the order of the shards, in which a sum of them all at once is made.
void Clipper::add_shards() {
  Backend& backend = sums_.backend();
  Stream& stream = backend.compute_stream();
  if (std::isinf(power_)) {
    const std::vector<std::pair<int64_t, int64_t>> all = {{0, shard_sums_.numel()}};
    backend.run(stream, PowerSumArgs{shard_sums_, all, power_, sums_});
    return;
  }
  backend.copy(stream, sums_.data(), shard_sums_.data(), sums_.bytes());
  for (int64_t i = 1; i < shard_sums_.numel(); ++i) {
    backend.run(stream, AddArgs{sums_, shard_sums_.slice(i, {}), sums_});
  }
}

void Clipper::clear_sums(int64_t first, int64_t count) {
  Backend& backend = sums_.backend();
  const Tensor sums = sums_.slice(first, Shape{count});
  backend.fill_zero(backend.compute_stream(), sums.data(), sums.bytes());
}

void Clipper::sum_gradients() {
  if (one_by_one_) {
    if (!by_blocks_) add_shards();
    return;
  }
  if (by_blocks_) clear_sums(0, sums_.numel());
  for (const Part& part : parts_) {
    by_blocks_ ? sum_blocks(part) : sum_shard(part, sums_, &part != parts_.data());
  }
}

void Clipper::add_over_ranks() {
  Backend& backend = norm_.backend();
  Stream& stream = backend.compute_stream();
  const bool largest = std::isinf(power_) && !by_blocks_;
  if (group_) {
    group_->all_reduce(stream, all_sums_, largest ? comm::ReduceOp::kMax : comm::ReduceOp::kSum);
  }
  if (!by_blocks_) return;
  const std::vector<std::pair<int64_t, int64_t>> all = {{0, all_sums_.numel()}};
  backend.run(stream, PowerSumArgs{.x = all_sums_,
                                   .spans = all,
                                   .power = std::isinf(power_) ? power_ : 1,
                                   .out = power_sum_});
}

void Clipper::measure(const Tensor* loss_scale, const Tensor* overflow, double skip_above) {
  Backend& backend = norm_.backend();
  Stream& stream = backend.compute_stream();
  for (const Tensor* scalar : {loss_scale, overflow}) {
    FSDP_CHECK(
        !scalar || &scalar->backend() == &backend,
        "[clip] loss scale and overflow: expected them on the backend that decides about the step");
  }
  sum_gradients();
  if (is_apart()) copy_in_order(backend, sums_, all_sums_);
  add_over_ranks();
  backend.run(stream, ClipArgs{.power_sum = power_sum_,
                               .power = power_,
                               .max_norm = max_norm_,
                               .skip_above = skip_above,
                               .loss_scale = loss_scale,
                               .overflow = overflow,
                               .norm = norm_,
                               .coefficient = coefficient_,
                               .skip = skip_});
  if (!is_apart() || one_by_one_) return;
  copy_in_order(backend,
                {{coefficient_, for_optimizer_.coefficient}, {skip_, for_optimizer_.skip}});
}

}  // namespace fsdp::optim
