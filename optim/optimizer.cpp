// State of the shards, and the order of a step.
#include "optim/optimizer.h"

#include <algorithm>
#include <limits>

#include "core/optimizer_rules/list.h"
#include "core/rng.h"
#include "core/scope.h"
#include "core/shard_args.h"
#include "optim/optimizer_kind.h"

namespace fsdp::optim {
namespace {

// Kernels and `bench kernels` have room for two states of a rule.
#define FSDP_FEW_STATES(_, Rule) static_assert(rules::Rule::kStates.size() <= 2);
FSDP_RULES(FSDP_FEW_STATES, )
#undef FSDP_FEW_STATES

// What a configuration checks key by key, a program of one's own may get wrong.
void check_options(const OptimizerOptions& o) {
  const auto check = [](std::string_view name, double value, double most, bool below) {
    FSDP_CHECK(value >= 0 && (below ? value < most : value <= most),
               "[optimizer] {}: expected a number from 0 to {}{}, got {}", name,
               below ? "below " : "", most, value);
  };
  for (const auto& [name, value] : {std::pair{"beta1", o.beta1},
                                    {"beta2", o.beta2},
                                    {"rho", o.rho},
                                    {"momentum", o.momentum}}) {
    check(name, value, 1, true);
  }
  check("dampening", o.dampening, 1, false);
  constexpr double kMost = std::numeric_limits<double>::max();
  check("epsilon", o.epsilon, kMost, false);
  check("weight_decay", o.weight_decay, kMost, false);
}

// f(TypeTag<Rule>{}), the rule of the kind.
template <typename F>
decltype(auto) with_rule(OptimizerKind kind, F&& f) {
  switch (kind) {
#define FSDP_CASE(_, Rule)     \
  case OptimizerKind::k##Rule: \
    return f(TypeTag<rules::Rule>{});
    FSDP_RULES(FSDP_CASE, )
#undef FSDP_CASE
  }
  fail("[optimizer] kind: {}", static_cast<int>(kind));
}

}  // namespace

Optimizer::Optimizer(std::vector<OptimizerShard> shards, const OptimizerOptions& options,
                     WholeMatrices matrices)
    : shards_(std::move(shards)),
      options_(options),
      matrices_(std::move(matrices)),
      names_(optim::state_names(options)) {
  check_options(options_);
  Backend& backend = backend_of(shards_, "optimizer");
  if (matrices_.rule) matrix_names_ = matrices_.rule->state_names();
  FSDP_CHECK(!matrices_.rule || !matrices_.collectives || matrices_.collectives == &backend,
             "[optimizer] a rule of whole matrices: expected the masters on the backend of the "
             "collectives, not offloaded");
  const DType wide = accumulation_dtype(shards_[0].master.dtype());
  const DType state = options_.state_dtype.value_or(wide);
  FSDP_CHECK(state == wide || (state == DType::kBF16 && wide == DType::kF32),
             "[optimizer] state_dtype: expected {}{}, got {}", fsdp::name_of(wide),
             wide == DType::kF32 ? " or bf16" : "", fsdp::name_of(state));
  for (const OptimizerShard& shard : shards_) state_.push_back(state_of(shard, state));
  learning_rate_ = Tensor::zeros(backend, Shape{}, DType::kF64, MemoryCategory::kOptimizerState);
}

bool Optimizer::is_matrix(const Parameter& parameter) const {
  const std::vector<ParameterRole>& roles = matrices_.roles;
  return matrices_.rule && std::find(roles.begin(), roles.end(), parameter.role()) != roles.end();
}

Optimizer::ShardState Optimizer::state_of(const OptimizerShard& shard, DType dtype) const {
  FSDP_CHECK(shard.master.numel() == shard.layout.shard_numel(),
             "[optimizer] {}: master: expected the {} elements of a shard, got {}", shard.name,
             shard.layout.shard_numel(), shard.master.numel());
  const Scope scope(shard.master.backend(), shard.name);
  ShardState state;
  const size_t values = std::max(names_.size(), matrix_names_.size());
  for (size_t i = 0; i < values; ++i) {
    const auto [at_work, stored] = shard.access->add_state(shard.master, dtype);
    state.values.push_back(at_work);
    state.stored.push_back(stored);
  }
  state.draws = draws_of(shard, dtype, values);
  const std::vector<FlatParameter>& all = shard.layout.parameters();
  for (const ShardSegment& segment : shard.layout.segments(shard.index)) {
    if (is_matrix(*all[static_cast<size_t>(segment.parameter)].parameter)) continue;
    state.segments.push_back(segment);
  }
  for (size_t p = 0; p < all.size(); ++p) {
    if (!is_matrix(*all[p].parameter)) continue;
    state.matrices.push_back(place_of(shard, static_cast<int>(p)));
  }
  const auto parameters = static_cast<int64_t>(all.size());
  state.step_counts = Tensor::zeros(shard.master.backend(), Shape{parameters}, DType::kI32,
                                    MemoryCategory::kOptimizerState);
  return state;
}

void Optimizer::step(double learning_rate, const Tensor& coefficient, const Tensor& skip,
                     uint32_t number) {
  begin_step(learning_rate, coefficient, skip, number);
  for (size_t i = 0; i < shards_.size(); ++i) step_shard(i);
}

void Optimizer::begin_step(double learning_rate, const Tensor& coefficient, const Tensor& skip,
                           uint32_t number) {
  Backend& backend = learning_rate_.backend();
  FSDP_CHECK(&coefficient.backend() == &backend && &skip.backend() == &backend,
             "[optimizer] coefficient and skip: expected on the backend of the masters");
  learning_rate_.write(&learning_rate);
  coefficient_ = coefficient;
  skip_ = skip;
  number_ = number;
}

void Optimizer::step_shard(size_t index) {
  Backend& backend = learning_rate_.backend();
  OptimizerShard& shard = shards_.at(index);
  ShardState& state = state_[index];
  shard.access->begin(ShardAccess::Use::kUpdate);
  backend.run(backend.compute_stream(), AdvanceStepsArgs{state.step_counts, shard.present, skip_});
  const ShardUpdate update = {.master = shard.master,
                              .grad = shard.gradient,
                              .copy = shard.copy.defined() ? &shard.copy : nullptr,
                              .segments = state.segments,
                              .step_counts = state.step_counts,
                              .present = shard.present,
                              .learning_rate = learning_rate_,
                              .gradient_scale = coefficient_,
                              .skip = skip_,
                              .weight_decay = options_.weight_decay,
                              .draws = &state.draws,
                              .seed = options_.rounding_seed,
                              .update = number_};
  step_elements(backend, update, state.values);
  if (matrices_.rule) step_matrices(shard, state, update);
  shard.access->end(ShardAccess::Use::kUpdate);
}

void Optimizer::step_elements(Backend& backend, const ShardUpdate& shard,
                              std::vector<Tensor>& state) const {
  with_rule(options_.kind, [&]<typename Rule>(TypeTag<Rule>) {
    UpdateArgs<Rule> args = {.shard = shard, .rule = Rule::of(options_)};
    for (size_t i = 0; i < names_.size(); ++i) args.state[i] = &state[i];
    backend.run(backend.compute_stream(), args);
  });
}

// See ShardUpdate::draws. `state`: dtype of `count` values beside the master.
std::vector<std::vector<uint64_t>> Optimizer::draws_of(const OptimizerShard& shard, DType state,
                                                       size_t count) const {
  std::vector<std::vector<uint64_t>> draws(1 + count);
  for (const FlatParameter& p : shard.layout.parameters()) {
    const std::string& name = p.parameter->name();
    if (shard.master.dtype() == DType::kBF16 && options_.rounds_masters_by_chance) {
      draws[0].push_back(hash_name(name));
    }
    if (state != DType::kBF16) continue;
    const std::vector<std::string_view>& names = names_of(*p.parameter);
    for (size_t i = 0; i < count; ++i) {
      const std::string_view value = i < names.size() ? names[i] : std::string_view();
      draws[1 + i].push_back(hash_name(fmt::format("{}/{}", name, value)));
    }
  }
  return draws;
}

Optimizer::MatrixPlace Optimizer::place_of(const OptimizerShard& shard, int parameter) {
  MatrixPlace place = {.piece = {.parameter = parameter}, .counts = {}, .segments = {}};
  for (int index = 0; index < shard.layout.shards(); ++index) {
    place.counts.push_back(0);
    for (const ShardPiece& piece : shard.layout.pieces(index)) {
      if (piece.parameter != parameter) continue;
      place.counts.back() = piece.count;
      if (index == shard.index) place.piece = piece;
    }
  }
  const FlatParameter& of = shard.layout.parameters()[static_cast<size_t>(parameter)];
  place.segments = {{.begin = 0,
                     .end = place.piece.count,
                     .decay = of.parameter->decay(),
                     .parameter = parameter,
                     .first = place.piece.parameter_begin}};
  return place;
}

// In the order of the layout, which is that of every rank.
void Optimizer::step_matrices(const OptimizerShard& shard, const ShardState& state,
                              const ShardUpdate& update) const {
  for (const MatrixPlace& place : state.matrices) {
    const ShardPiece& piece = place.piece;
    const auto piece_of = [&](const Tensor& of_shard) {
      return of_shard.slice(piece.shard_begin, Shape{piece.count});
    };
    Tensor master = piece_of(update.master), copy = update.copy ? piece_of(*update.copy) : Tensor();
    const Tensor gradient = piece_of(update.grad);
    const ShardUpdate of_piece = {.master = master,
                                  .grad = gradient,
                                  .copy = update.copy ? &copy : nullptr,
                                  .segments = place.segments,
                                  .step_counts = update.step_counts,
                                  .present = update.present,
                                  .learning_rate = update.learning_rate,
                                  .gradient_scale = update.gradient_scale,
                                  .skip = update.skip,
                                  .weight_decay = update.weight_decay,
                                  .draws = update.draws,
                                  .seed = update.seed,
                                  .update = update.update};
    std::vector<Tensor> values;
    for (size_t i = 0; i < matrix_names_.size(); ++i) values.push_back(piece_of(state.values[i]));
    const auto parameter = static_cast<size_t>(piece.parameter);
    MatrixUpdate matrix = {.parameter = *shard.layout.parameters()[parameter].parameter,
                           .piece = of_piece,
                           .state = values,
                           .first = piece.parameter_begin,
                           .group = matrices_.group,
                           .counts = place.counts};
    matrices_.rule->update(matrix);
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
      const Parameter& parameter = *parameters[static_cast<size_t>(piece.parameter)].parameter;
      const std::vector<std::string_view>& names = names_of(parameter);
      for (size_t v = 0; v < names.size(); ++v) {
        visit({.name = names[v],
               .parameter = parameter,
               .first = piece.parameter_begin,
               .values = state_[i].stored[v].slice(piece.shard_begin, Shape{piece.count})});
      }
    }
  }
}

// ---------------------------------------------------------------------------- Kinds

static_assert(OptimizerKind{} == OptimizerKind::kAdamW);  // the default of OptimizerOptions::kind

std::string_view name_of(OptimizerKind kind) {
  return with_rule(kind, []<typename Rule>(TypeTag<Rule>) { return Rule::kName; });
}

bool reads(OptimizerKind kind, std::string_view option) {
  return with_rule(kind, [&]<typename Rule>(TypeTag<Rule>) {
    return std::find(Rule::kReads.begin(), Rule::kReads.end(), option) != Rule::kReads.end();
  });
}

std::string kinds_that_read(std::string_view option) {
  std::vector<std::string_view> names;
  for (const OptimizerKind kind : kOptimizerKinds) {
    if (reads(kind, option)) names.push_back(name_of(kind));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

std::vector<std::string_view> state_names(const OptimizerOptions& options) {
  return with_rule(options.kind, [&]<typename Rule>(TypeTag<Rule>) {
    const size_t count = rules::states_of(Rule::of(options));
    return std::vector<std::string_view>(Rule::kStates.begin(), Rule::kStates.begin() + count);
  });
}

std::unique_ptr<Optimizer> make_optimizer(std::vector<OptimizerShard> shards,
                                          const OptimizerOptions& options, WholeMatrices matrices) {
  return std::make_unique<Optimizer>(std::move(shards), options, std::move(matrices));
}

}  // namespace fsdp::optim
