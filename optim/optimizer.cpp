// State of the shards, and the order of a step. The kinds are listed at the end.
#include "optim/optimizer.h"

#include <algorithm>

#include "optim/adadelta.h"
#include "optim/adam.h"
#include "optim/adamax.h"
#include "optim/sgd.h"

namespace fsdp::optim {

Optimizer::Optimizer(std::vector<OptimizerShard> shards, const OptimizerOptions& options,
                     std::vector<std::string_view> state_names)
    : shards_(std::move(shards)), options_(options), state_names_(std::move(state_names)) {
  Backend& backend = backend_of(shards_, "optimizer");
  const DType master = shards_[0].master.dtype(), wide = accumulation_dtype(master);
  const DType state = options_.state_dtype.value_or(wide);
  FSDP_CHECK(state == wide || (state == DType::kBF16 && wide == DType::kF32),
             "[optimizer] state_dtype: expected {}{}, got {}", fsdp::name_of(wide),
             wide == DType::kF32 ? " or bf16" : "", fsdp::name_of(state));
  std::vector<bool> narrow(1 + state_names_.size(), state != wide);
  narrow[0] = master != wide;
  if (narrow[0] || (narrow.size() > 1 && narrow[1])) {
    int64_t largest = 0;
    for (const OptimizerShard& shard : shards_) largest = std::max(largest, shard.master.numel());
    wide_.emplace(backend, wide, narrow, std::min(largest, WideBuffers::kMostElements));
  }
  for (const OptimizerShard& shard : shards_) state_.push_back(state_of(shard, state));
  learning_rate_ = Tensor::zeros(backend, Shape{}, DType::kF64, MemoryCategory::kOptimizerState);
}

Optimizer::ShardState Optimizer::state_of(const OptimizerShard& shard, DType dtype) const {
  FSDP_CHECK(shard.master.numel() == shard.layout.shard_numel(),
             "[optimizer] {}: master: expected the {} elements of a shard, got {}", shard.name,
             shard.layout.shard_numel(), shard.master.numel());
  const bool by_chance = shard.master.dtype() == DType::kBF16 && options_.rounds_masters_by_chance;
  std::vector<std::vector<ParameterRun>> runs(1 + state_names_.size());
  if (by_chance) runs[0] = shard.layout.runs(shard.index);
  ShardState state;
  for (size_t i = 0; i < state_names_.size(); ++i) {
    const auto [values, stored] = shard.access->add_state(shard.master, dtype);
    state.values.push_back(values);
    state.stored.push_back(stored);
    if (dtype != DType::kBF16) continue;
    runs[1 + i] = shard.layout.runs(shard.index, fmt::format("/{}", state_names_[i]));
  }
  const auto parameters = static_cast<int64_t>(shard.layout.parameters().size());
  state.step_counts = Tensor::zeros(shard.master.backend(), Shape{parameters}, DType::kI32,
                                    MemoryCategory::kOptimizerState);
  state.parts = parts_of(shard, wide_ ? WideBuffers::kMostElements : shard.master.numel(), runs);
  return state;
}

void Optimizer::step(double learning_rate, const Tensor& coefficient, const Tensor& skip,
                     uint32_t number) {
  Backend& backend = learning_rate_.backend();
  FSDP_CHECK(&coefficient.backend() == &backend && &skip.backend() == &backend,
             "[optimizer] coefficient and skip: expected on the backend of the masters");
  learning_rate_.write(&learning_rate);
  for (size_t i = 0; i < shards_.size(); ++i) {
    const OptimizerShard& shard = shards_[i];
    shard.access->begin(ShardAccess::Use::kUpdate);
    backend.run(backend.compute_stream(),
                AdvanceStepsArgs{state_[i].step_counts, shard.present, skip});
    for (const ShardPart& part : state_[i].parts) {
      step_part(shard, state_[i], part, coefficient, skip, number);
    }
    shard.access->end(ShardAccess::Use::kUpdate);
  }
}

// The copy is made from the master as it is stored, after rounding.
void Optimizer::step_part(const OptimizerShard& shard, const ShardState& state,
                          const ShardPart& part, const Tensor& coefficient, const Tensor& skip,
                          uint32_t number) {
  const auto part_of = [&](const Tensor& whole) {
    return whole.slice(part.begin, Shape{part.count});
  };
  const auto widened = [&](size_t value, const Tensor& narrow) {
    return wide_ ? wide_->widened(value, narrow) : narrow;
  };
  const Tensor stored = part_of(shard.master);
  Tensor master = widened(0, stored), copy;
  if (shard.copy.defined()) copy = part_of(shard.copy);
  const bool copies_later = copy.defined() && master.dtype() != stored.dtype();
  std::vector<Tensor> values;
  for (size_t i = 0; i < state.values.size(); ++i) {
    values.push_back(widened(1 + i, part_of(state.values[i])));
  }
  Backend& backend = stored.backend();
  update(backend,
         {.master = master,
          .grad = part_of(shard.gradient),
          .copy = copy.defined() && !copies_later ? &copy : nullptr,
          .segments = part.segments,
          .step_counts = state.step_counts,
          .present = shard.present,
          .learning_rate = learning_rate_,
          .gradient_scale = coefficient,
          .skip = skip,
          .weight_decay = options_.weight_decay},
         values);
  if (!wide_) return;
  const uint64_t seed = options_.rounding_seed;
  wide_->narrow(0, master, stored, part.runs[0], seed, number);
  for (size_t i = 0; i < values.size(); ++i) {
    wide_->narrow(1 + i, values[i], part_of(state.values[i]), part.runs[1 + i], seed, number);
  }
  if (copies_later) backend.run(backend.compute_stream(), CastArgs{stored, copy});
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
               .values = state_[i].stored[v].slice(piece.shard_begin, Shape{piece.count})});
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
