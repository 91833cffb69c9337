// Global norm over shards: local power sums, one all-reduce, the coefficient on the device.
#include "optim/clip.h"

#include <cmath>

namespace fsdp::optim {

Clipper::Clipper(const std::vector<OptimizerShard>& shards, comm::Communicator* group,
                 double max_norm, double power)
    : shards_(shards), group_(group), max_norm_(max_norm), power_(power) {
  FSDP_CHECK(!shards_.empty(), "[clip] shards: expected at least one");
  FSDP_CHECK(power >= 1, "[clip] norm type: expected 1 or more, or infinity, got {}", power);
  Backend& backend = shards_[0].gradient.backend();
  const auto scalar = [&](DType dtype) {
    return Tensor::zeros(backend, Shape{}, dtype, MemoryCategory::kOptimizerState);
  };
  power_sum_ = scalar(DType::kF64);
  norm_ = scalar(DType::kF64);
  coefficient_ = scalar(accumulation_dtype(shards_[0].gradient.dtype()));
  skip_ = scalar(DType::kI32);
}

void Clipper::measure() {
  Backend& backend = norm_.backend();
  Stream& stream = backend.compute_stream();
  for (size_t i = 0; i < shards_.size(); ++i) {
    backend.power_sum(stream, {.x = shards_[i].gradient,
                               .spans = shards_[i].spans,
                               .power = power_,
                               .out = power_sum_,
                               .accumulate = i > 0});
  }
  if (group_) {
    const bool maximum = std::isinf(power_);
    group_->all_reduce(stream, power_sum_,
                       maximum ? comm::ReduceOp::kMax : comm::ReduceOp::kSum);
  }
  backend.clip_coefficient(stream, {.power_sum = power_sum_,
                                    .power = power_,
                                    .max_norm = max_norm_,
                                    .norm = norm_,
                                    .coefficient = coefficient_,
                                    .skip = skip_});
}

}  // namespace fsdp::optim
