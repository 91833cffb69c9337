// Global norm over shards: local power sums, one all-reduce, the coefficient on the device.
#include "optim/clip.h"

#include <cmath>

namespace fsdp::optim {

Clipper::Clipper(const std::vector<OptimizerShard>& shards, comm::Communicator* group,
                 double max_norm, double power)
    : group_(group), max_norm_(max_norm), power_(power) {
  Backend& backend = backend_of(shards, "clip");
  FSDP_CHECK(power >= 1, "[clip] norm type: expected 1 or more, or infinity, got {}", power);
  const auto scalar = [&](DType dtype) {
    return Tensor::zeros(backend, Shape{}, dtype, MemoryCategory::kOptimizerState);
  };
  power_sum_ = scalar(DType::kF64);
  norm_ = scalar(DType::kF64);
  coefficient_ = scalar(accumulation_dtype(shards[0].gradient.dtype()));
  skip_ = scalar(DType::kI32);
  int64_t blocks = 0;
  for (const OptimizerShard& shard : shards) {
    Part& part = parts_.emplace_back();
    part.gradient = shard.gradient;
    part.spans = shard.layout.spans(shard.index);
    if (!shard.norm_by_blocks) continue;
    part.first_blocks = shard.layout.first_blocks(shard.index);
    part.blocks = shard.layout.blocks();
    blocks += part.blocks;
  }
  if (blocks == 0) return;
  blocks_ = Tensor::zeros(backend, Shape{blocks}, DType::kF64, MemoryCategory::kOptimizerState);
}

// Every block has its place, whichever rank holds it; those of other ranks are zero.
void Clipper::sum_in_fixed_order() {
  Backend& backend = norm_.backend();
  Stream& stream = backend.compute_stream();
  backend.fill_zero(stream, blocks_.data(), blocks_.bytes());
  int64_t first = 0;
  for (const Part& part : parts_) {
    Tensor out = blocks_.slice(first, Shape{part.blocks});
    backend.power_sum(stream, {.x = part.gradient,
                               .spans = part.spans,
                               .power = power_,
                               .out = out,
                               .first_blocks = &part.first_blocks});
    first += part.blocks;
  }
  if (group_) group_->all_reduce(stream, blocks_, comm::ReduceOp::kSum);
  const std::vector<std::pair<int64_t, int64_t>> all = {{0, first}};
  backend.power_sum(
      stream,
      {.x = blocks_, .spans = all, .power = std::isinf(power_) ? power_ : 1, .out = power_sum_});
}

void Clipper::sum_over_shards() {
  Backend& backend = norm_.backend();
  Stream& stream = backend.compute_stream();
  for (size_t i = 0; i < parts_.size(); ++i) {
    backend.power_sum(stream, {.x = parts_[i].gradient,
                               .spans = parts_[i].spans,
                               .power = power_,
                               .out = power_sum_,
                               .accumulate = i > 0});
  }
  if (!group_) return;
  group_->all_reduce(stream, power_sum_,
                     std::isinf(power_) ? comm::ReduceOp::kMax : comm::ReduceOp::kSum);
}

void Clipper::measure(const Tensor* loss_scale, const Tensor* overflow) {
  Backend& backend = norm_.backend();
  Stream& stream = backend.compute_stream();
  for (const Tensor* scalar : {loss_scale, overflow}) {
    FSDP_CHECK(!scalar || &scalar->backend() == &backend,
               "[clip] loss scale and overflow: expected on the backend of the gradients");
  }
  blocks_.defined() ? sum_in_fixed_order() : sum_over_shards();
  backend.clip_coefficient(stream, {.power_sum = power_sum_,
                                    .power = power_,
                                    .max_norm = max_norm_,
                                    .loss_scale = loss_scale,
                                    .overflow = overflow,
                                    .norm = norm_,
                                    .coefficient = coefficient_,
                                    .skip = skip_});
}

}  // namespace fsdp::optim
