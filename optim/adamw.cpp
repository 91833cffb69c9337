// AdamW over shards: state and the order of its kernels.
#include "optim/adamw.h"

namespace fsdp::optim {

AdamW::AdamW(std::vector<OptimizerShard> shards, const AdamWOptions& options)
    : shards_(std::move(shards)), options_(options) {
  FSDP_CHECK(!shards_.empty(), "[adamw] shards: expected at least one");
  for (const OptimizerShard& shard : shards_) {
    Backend& backend = shard.master.backend();
    const auto zeros = [&](Shape shape, DType dtype) {
      return Tensor::zeros(backend, shape, dtype, MemoryCategory::kOptimizerState);
    };
    state_.push_back({zeros(shard.master.shape(), shard.master.dtype()),
                      zeros(shard.master.shape(), shard.master.dtype()),
                      zeros(Shape{shard.parameters}, DType::kI32)});
  }
  learning_rate_ = Tensor::zeros(shards_[0].master.backend(), Shape{}, DType::kF64,
                                 MemoryCategory::kOptimizerState);
}

void AdamW::step(double learning_rate, const Tensor& coefficient, const Tensor& skip) {
  learning_rate_.write(&learning_rate);
  for (size_t i = 0; i < shards_.size(); ++i) {
    OptimizerShard& shard = shards_[i];
    State& state = state_[i];
    Backend& backend = shard.master.backend();
    Stream& stream = backend.compute_stream();
    backend.advance_steps(stream, state.step_counts, shard.present, skip);
    backend.adamw(stream, {.master = shard.master,
                           .grad = shard.gradient,
                           .exp_avg = state.exp_avg,
                           .exp_avg_sq = state.exp_avg_sq,
                           .copy = shard.copy.defined() ? &shard.copy : nullptr,
                           .segments = shard.segments,
                           .step_counts = state.step_counts,
                           .present = shard.present,
                           .learning_rate = learning_rate_,
                           .gradient_scale = coefficient,
                           .skip = skip,
                           .beta1 = options_.beta1,
                           .beta2 = options_.beta2,
                           .epsilon = options_.epsilon,
                           .weight_decay = options_.weight_decay});
  }
}

}  // namespace fsdp::optim
