// State of the shards, and the order of a step. The kinds are listed at the end.
#include "optim/optimizer.h"

#include "core/paged_tensors.h"
#include "optim/adadelta.h"
#include "optim/adam.h"
#include "optim/adamax.h"
#include "optim/sgd.h"

namespace fsdp::optim {

Optimizer::Optimizer(std::vector<OptimizerShard> shards, double weight_decay,
                     std::vector<std::string_view> state_names)
    : shards_(std::move(shards)),
      weight_decay_(weight_decay),
      state_names_(std::move(state_names)) {
  Backend& backend = backend_of(shards_, "optimizer");
  for (const OptimizerShard& shard : shards_) state_.push_back(state_of(shard));
  learning_rate_ = Tensor::zeros(backend, Shape{}, DType::kF64, MemoryCategory::kOptimizerState);
}

Optimizer::ShardState Optimizer::state_of(const OptimizerShard& shard) const {
  FSDP_CHECK(shard.master.numel() == shard.layout.shard_numel(),
             "[optimizer] {}: master: expected the {} elements of a shard, got {}", shard.name,
             shard.layout.shard_numel(), shard.master.numel());
  const auto zeros = [&](Shape shape, DType dtype) {
    return Tensor::zeros(shard.master.backend(), shape, dtype, MemoryCategory::kOptimizerState);
  };
  ShardState state = {
      .segments = shard.layout.segments(shard.index), .values = {}, .homes = {}, .step_counts = {}};
  for (size_t i = 0; i < state_names_.size(); ++i) {
    if (!shard.paged) {
      state.values.push_back(zeros(shard.master.shape(), shard.master.dtype()));
      state.homes.push_back(state.values.back());
      continue;
    }
    const auto [home, here] = shard.paged->add(shard.master.shape(), shard.master.dtype(),
                                               MemoryCategory::kOptimizerState);
    state.values.push_back(here);
    state.homes.push_back(home);
  }
  const auto parameters = static_cast<int64_t>(shard.layout.parameters().size());
  state.step_counts = zeros(Shape{parameters}, DType::kI32);
  return state;
}

void Optimizer::step(double learning_rate, const Tensor& coefficient, const Tensor& skip,
                     const std::function<void(size_t shard)>& updated) {
  Backend& backend = learning_rate_.backend();
  FSDP_CHECK(&coefficient.backend() == &backend && &skip.backend() == &backend,
             "[optimizer] coefficient and skip: expected on the backend of the masters");
  learning_rate_.write(&learning_rate);
  for (size_t i = 0; i < shards_.size(); ++i) {
    OptimizerShard& shard = shards_[i];
    ShardState& state = state_[i];
    if (shard.paged) shard.paged->bring_in(PagedTensors::What::kAll);
    backend.advance_steps(backend.compute_stream(), state.step_counts, shard.present, skip);
    update(backend,
           {.master = shard.master,
            .grad = shard.gradient,
            .copy = shard.copy.defined() ? &shard.copy : nullptr,
            .segments = state.segments,
            .step_counts = state.step_counts,
            .present = shard.present,
            .learning_rate = learning_rate_,
            .gradient_scale = coefficient,
            .skip = skip,
            .weight_decay = weight_decay_},
           state.values);
    if (updated) updated(i);
    if (shard.paged) shard.paged->give_back();
  }
}

void Optimizer::visit_state(const std::function<void(const StatePart&)>& visit) {
  for (size_t i = 0; i < shards_.size(); ++i) {
    const OptimizerShard& shard = shards_[i];
    const std::vector<FlatParameter>& parameters = shard.layout.parameters();
    for (size_t p = 0; p < parameters.size(); ++p) {
      visit({.name = "step",
             .parameter = *parameters[p].parameter,
             .values = state_[i].step_counts.slice(static_cast<int64_t>(p), Shape{})});
    }
    for (const ShardPiece& piece : shard.layout.pieces(shard.index)) {
      for (size_t v = 0; v < state_names_.size(); ++v) {
        visit({.name = state_names_[v],
               .parameter = *parameters[static_cast<size_t>(piece.parameter)].parameter,
               .first = piece.parameter_begin,
               .values = state_[i].homes[v].slice(piece.shard_begin, Shape{piece.count})});
      }
    }
  }
}

// ---------------------------------------------------------------------------- Kinds

std::string_view name_of(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::kAdamW:
      return "adamw";
    case OptimizerKind::kAdam:
      return "adam";
    case OptimizerKind::kAdamax:
      return "adamax";
    case OptimizerKind::kAdadelta:
      return "adadelta";
    case OptimizerKind::kSgd:
      return "sgd";
  }
  return "?";
}

std::vector<std::string_view> state_names(const OptimizerOptions& options) {
  switch (options.kind) {
    case OptimizerKind::kAdamax:
      return Adamax::state_names();
    case OptimizerKind::kAdadelta:
      return Adadelta::state_names();
    case OptimizerKind::kSgd:
      return Sgd::state_names(options);
    default:
      return Adam::state_names();
  }
}

std::unique_ptr<Optimizer> make_optimizer(std::vector<OptimizerShard> shards,
                                          const OptimizerOptions& options) {
  switch (options.kind) {
    case OptimizerKind::kAdamax:
      return std::make_unique<Adamax>(std::move(shards), options);
    case OptimizerKind::kAdadelta:
      return std::make_unique<Adadelta>(std::move(shards), options);
    case OptimizerKind::kSgd:
      return std::make_unique<Sgd>(std::move(shards), options);
    default:
      return std::make_unique<Adam>(std::move(shards), options);
  }
}

}  // namespace fsdp::optim
