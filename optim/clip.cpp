// Global norm over shards: local power sums, one all-reduce, the coefficient on the device.
#include "optim/clip.h"

#include <cmath>

#include "core/copy_in_order.h"

namespace fsdp::optim {

Clipper::Clipper(const std::vector<OptimizerShard>& shards, comm::Communicator* group,
                 double max_norm, double power, Backend* decides)
    : group_(group), max_norm_(max_norm), power_(power) {
  Backend& gradients = backend_of(shards, "clip");
  Backend& backend = decides ? *decides : gradients;
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
    blocks += part.blocks;
  }
  by_blocks_ = blocks > 0;
  const Shape sums = by_blocks_ ? Shape{blocks} : Shape{};
  const DType wide = accumulation_dtype(shards[0].gradient.dtype());
  norm_ = zeros(backend, {}, DType::kF64);
  coefficient_ = zeros(backend, {}, wide);
  skip_ = zeros(backend, {}, DType::kI32);
  sums_ = all_sums_ = zeros(gradients, sums, DType::kF64);
  for_optimizer_ = {coefficient_, skip_};
  if (is_apart()) {
    all_sums_ = zeros(backend, sums, DType::kF64);
    for_optimizer_ = {zeros(gradients, {}, wide), zeros(gradients, {}, DType::kI32)};
  }
  power_sum_ = by_blocks_ ? zeros(backend, {}, DType::kF64) : all_sums_;
}

// Every block has its place, whichever rank holds it; those of other ranks are zero.
void Clipper::sum_blocks() {
  Backend& backend = sums_.backend();
  Stream& stream = backend.compute_stream();
  backend.fill_zero(stream, sums_.data(), sums_.bytes());
  int64_t first = 0;
  for (const Part& part : parts_) {
    Tensor out = sums_.slice(first, Shape{part.blocks});
    part.access->begin(ShardAccess::Use::kNorm);
    backend.run(stream, PowerSumArgs{.x = part.gradient,
                                     .spans = part.spans,
                                     .power = power_,
                                     .out = out,
                                     .first_blocks = &part.first_blocks});
    part.access->end(ShardAccess::Use::kNorm);
    first += part.blocks;
  }
}

void Clipper::sum_shards() {
  Backend& backend = sums_.backend();
  for (size_t i = 0; i < parts_.size(); ++i) {
    const Part& part = parts_[i];
    part.access->begin(ShardAccess::Use::kNorm);
    backend.run(backend.compute_stream(), PowerSumArgs{.x = part.gradient,
                                                       .spans = part.spans,
                                                       .power = power_,
                                                       .out = sums_,
                                                       .accumulate = i > 0});
    part.access->end(ShardAccess::Use::kNorm);
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
    FSDP_CHECK(!scalar || &scalar->backend() == &backend,
               "[clip] loss scale and overflow: expected on the backend that decides");
  }
  by_blocks_ ? sum_blocks() : sum_shards();
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
  if (!is_apart()) return;
  copy_in_order(backend,
                {{coefficient_, for_optimizer_.coefficient}, {skip_, for_optimizer_.skip}});
}

}  // namespace fsdp::optim
