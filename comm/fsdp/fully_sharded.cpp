// Schedule of gathers and reduces; see the drawing in fully_sharded.h.
#include "comm/fsdp/fully_sharded.h"

#include <algorithm>

namespace fsdp::comm {
namespace {

constexpr size_t kRoot = 0;
constexpr size_t kBuffersInFlight = 2;  // double buffering: one unit computes, one is on its way

}  // namespace

FullySharded::FullySharded(Module& root, const WrapPredicate& wrap, const FsdpOptions& options,
                           Tape& tape, FsdpGroups groups)
    : gather_stream_(tape.backend().create_stream("gather")),
      reduce_stream_(tape.backend().create_stream("reduce")),
      runtime_{tape.backend(), options, groups, *gather_stream_, *reduce_stream_, nullptr} {
  const bool resident = options.strategy == Strategy::kNoShard || groups.gather.size() == 1;
  int64_t flags = 0;
  for (PlannedUnit& plan : plan_units(root, wrap)) {
    Module& module = *plan.module;
    FSDP_CHECK(!plan.parameters.empty() || units_.empty(), "[fsdp] unit {}: has no parameters",
               plan.name);
    const FlatLayout layout(plan.parameters, resident ? 1 : groups.gather.size());
    units_.push_back(std::make_unique<Unit>(runtime_, plan, layout));
    for (Parameter* parameter : plan.parameters) parameter->attach(&tape, units_.back().get());
    present_begin_.push_back(flags);
    flags += static_cast<int64_t>(plan.parameters.size());
    add_hooks(module, units_.size() - 1);
  }
  present_ = Tensor::zeros(backend(), Shape{flags}, DType::kI32, MemoryCategory::kOptimizerState);
  if (!resident) make_pools();
}

FullySharded::~FullySharded() {
  // Streams may still hold work that touches members; errors were reported where they were waited
  // for, and a destructor must not throw.
  for (Stream* stream : {&backend().compute_stream(), gather_stream_.get(), reduce_stream_.get()}) {
    try {
      backend().synchronize(*stream);
    } catch (const Error&) {
    }
  }
}

void FullySharded::make_pools() {
  size_t parameter_bytes = 0, gradient_bytes = 0;
  for (size_t i = kRoot + 1; i < units_.size(); ++i) {
    parameter_bytes = std::max(parameter_bytes, units_[i]->unsharded_bytes());
    gradient_bytes = std::max(gradient_bytes, units_[i]->unsharded_gradient_bytes());
  }
  const auto pool = [&](Communicator& group, size_t buffers, size_t bytes,
                        MemoryCategory category) {
    pools_.push_back(std::make_unique<BufferPool>(group, backend(), buffers, bytes, category));
    return pools_.back().get();
  };
  const size_t blocks = std::min(units_.size() - 1, kBuffersInFlight);
  using enum MemoryCategory;
  const UnitPools root = {
      pool(runtime_.groups.gather, 1, units_[kRoot]->unsharded_bytes(), kUnshardedParameter),
      pool(runtime_.groups.reduce, 1, units_[kRoot]->unsharded_gradient_bytes(), kGradient), 0};
  UnitPools block = {pool(runtime_.groups.gather, blocks, parameter_bytes, kUnshardedParameter),
                     pool(runtime_.groups.reduce, blocks, gradient_bytes, kGradient), 0};
  units_[kRoot]->set_pools(root);
  for (size_t i = kRoot + 1; i < units_.size(); ++i) {
    block.preferred = static_cast<int>((i - 1) % blocks);
    units_[i]->set_pools(block);
  }
}

// ---------------------------------------------------------------------------- Hooks

void FullySharded::add_hooks(Module& module, size_t unit) {
  module.set_hooks({.pre_forward = [this, unit] { pre_forward(unit); },
                    .post_forward = [this, unit] { post_forward(unit); },
                    .pre_backward = [this, unit] { pre_backward(unit); },
                    .post_backward = unit == kRoot ? std::function<void()>()
                                                   : [this, unit] { post_backward(unit); }});
}

// A prefetch that finds no buffer is left to the moment of need.
void FullySharded::prefetch(size_t unit) {
  if (unit > kRoot && unit < units_.size()) units_[unit]->unshard();
}

void FullySharded::pre_forward(size_t unit) {
  backend().set_scope(units_[unit]->name());
  units_[unit]->unshard();
  units_[unit]->wait_unsharded();
  if (runtime_.options.forward_prefetch) prefetch(unit + 1);
}

void FullySharded::post_forward(size_t unit) {
  // The root is needed again at once in backward: it stays.
  if (unit != kRoot) units_[unit]->reshard();
  backend().set_scope(units_[kRoot]->name());
}

void FullySharded::pre_backward(size_t unit) {
  backend().set_scope(units_[unit]->name());
  units_[unit]->unshard();
  units_[unit]->wait_unsharded();
  if (runtime_.options.backward_prefetch == BackwardPrefetch::kPre) {
    prefetch(unit == kRoot ? units_.size() - 1 : unit - 1);
  }
}

void FullySharded::post_backward(size_t unit) {
  units_[unit]->reshard();
  if (runtime_.options.backward_prefetch == BackwardPrefetch::kPost) prefetch(unit - 1);
  if (!units_[unit]->backward_pending()) units_[unit]->reduce();
  backend().set_scope(units_[kRoot]->name());
}

// ---------------------------------------------------------------------------- Step

void FullySharded::finish_backward() {
  for (size_t i = units_.size(); i-- > 0;) {
    units_[i]->reduce();
    units_[i]->reshard();
  }
  share_present_flags();
  for (const auto& unit : units_) backend().wait(backend().compute_stream(), unit->reduced());
  backend().set_scope("");
}

void FullySharded::share_present_flags() {
  std::vector<int32_t> flags;
  for (const auto& unit : units_) {
    flags.insert(flags.end(), unit->present().begin(), unit->present().end());
  }
  present_.write(flags.data());
  if (runtime_.groups.reduce.size() == 1) return;
  Stream& stream = *reduce_stream_;
  backend().wait(stream, backend().record(backend().compute_stream()));
  backend().wait(backend().compute_stream(),
                 runtime_.groups.reduce.all_reduce(stream, present_, ReduceOp::kMax));
}

std::vector<OptimizerShard> FullySharded::optimizer_shards() const {
  std::vector<OptimizerShard> shards;
  for (size_t i = 0; i < units_.size(); ++i) {
    const int64_t count = static_cast<int64_t>(units_[i]->layout().parameters().size());
    shards.push_back(
        units_[i]->optimizer_shard(present_.slice(present_begin_[i], Shape{count})));
  }
  return shards;
}

void FullySharded::finish_step() {
  runtime_.parameters_updated = backend().record(backend().compute_stream());
  for (const auto& unit : units_) unit->clear_gradients();
}

void FullySharded::reset() {
  for (const auto& unit : units_) {
    unit->clear_gradients();
    unit->reshard();
  }
  backend().set_scope("");
}

// ---------------------------------------------------------------------------- State

void FullySharded::initialise(const FillFunction& fill) {
  for (const auto& unit : units_) {
    for (const ShardPiece& piece : unit->layout().pieces(unit->shard_index())) {
      const Parameter& parameter =
          *unit->layout().parameters()[static_cast<size_t>(piece.parameter)].parameter;
      Tensor elements = unit->master().slice(piece.shard_begin, Shape{piece.count});
      fill(parameter, piece.parameter_begin, elements);
    }
    unit->master_changed();
  }
  runtime_.parameters_updated = backend().record(backend().compute_stream());
}

void FullySharded::visit(bool gradients,
                         const std::function<void(const Parameter&, const Tensor&)>& visit) {
  for (const auto& unit : units_) {
    const Tensor full = unit->gather_full(gradients);
    for (const FlatParameter& p : unit->layout().parameters()) {
      visit(*p.parameter, full.slice(p.offset, p.parameter->shape()));
    }
  }
}

void FullySharded::visit_parameters(
    const std::function<void(const Parameter&, const Tensor&)>& visit_one) {
  visit(false, visit_one);
}

void FullySharded::visit_gradients(
    const std::function<void(const Parameter&, const Tensor&)>& visit_one) {
  visit(true, visit_one);
}

}  // namespace fsdp::comm
