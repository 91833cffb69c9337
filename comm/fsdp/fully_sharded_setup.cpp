// Set-up of the sharding layer: the ranks agree on options and units, every unit gets its policy,
// its memory and its hooks. The schedule is in fully_sharded.cpp.
#include <algorithm>

#include "comm/agreement.h"
#include "comm/fsdp/fully_sharded.h"
#include "comm/fsdp/home/file_home.h"

namespace fsdp::comm {
namespace {

MeshOptions checked_mesh(Communicator& world, const FsdpOptions& o, const Backend& backend) {
  check_same_on_all(world, "options", texts_of(o));
  check_options(o, world.size());
  const Home state = row_of(o.offload).state;
  FSDP_CHECK((state != Home::kDevice) == (o.host != nullptr) && o.host != &backend,
             "[fsdp] host: with offload, expected a backend other than the one that computes; "
             "without offload, expected null");
  FSDP_CHECK(
      (state == Home::kFile) == (o.file != nullptr),
      "[fsdp] file: with offload: nvme, expected a backend whose memory is a file; otherwise "
      "expected null");
  FSDP_CHECK(
      !o.fixed_order || world.sums_in_rank_order(),
      "fsdp.fixed_order: NCCL adds in an order of its own; expected a transport through the host");
  return {.shard_size = shard_group_size(o, world.size()),
          .separate_reduce = o.separate_reduce,
          .reduce_over_all = o.fixed_order};
}

BufferPool::Lifetime lifetime_of_buffers(const FsdpOptions& options) {
  return options.release_arena ? BufferPool::Lifetime::kUntilGivenBack
                               : BufferPool::Lifetime::kPool;
}

std::unique_ptr<ShardHomes> make_homes(const FsdpOptions& o, const HomeRank& rank) {
  if (o.file) return std::make_unique<FileHomes>(rank, *o.host, *o.file);
  if (!o.host) return std::make_unique<ShardHomes>(rank);
  const OffloadRow& row = row_of(o.offload);
  const DeviceKeeps keeps = {.values = row.parameters == Home::kDevice,
                             .gradients = row.gradients == Home::kDevice};
  return std::make_unique<HostHomes>(rank, *o.host, keeps);
}

}  // namespace

Unit::Unit(FsdpRuntime& runtime, const PlannedUnit& plan, const UnitPolicy& unit_policy)
    : name(plan.name),
      depth(plan.depth),
      around(plan.around),
      part_of_root(plan.part_of_root),
      awaits_backward(plan.awaits_backward),
      policy(unit_policy),
      parameters(runtime, plan.name, plan.parameters, policy) {
  const bool has_gradients = policy.at.gradients.update != Placement::kNowhere;
  const ParameterSegment* trained = has_gradients ? parameters.trainable() : nullptr;
  if (trained) gradients.emplace(runtime, plan.name, policy, *trained);
}

FullySharded::FullySharded(Module& root, const WrapPolicy& wrap, const FsdpOptions& options,
                           Backend& backend, Communicator& world)
    : options_(options),
      mesh_(world, checked_mesh(world, options, backend)),
      streams_(backend, options_.separate_reduce),
      homes_(make_homes(options_, {.device = backend,
                                   .gather = streams_.gather(),
                                   .reduce = streams_.reduce(),
                                   .reduces = mesh_.reduce(),
                                   .lent = lifetime_of_buffers(options_),
                                   .gives_gradients_back = gives_gradients_back(options_)})),
      runtime_{.backend = backend, .mesh = mesh_, .streams = streams_, .homes = *homes_} {
  const std::vector<PlannedUnit> plan = plan_units(root, wrap);
  // Before memory of different sizes is asked for.
  check_same_on_all(mesh_.all_ranks(), "units", texts_of(plan));
  const std::vector<UnitPolicy> policies =
      unit_policies(options_, plan, {mesh_.shards(), mesh_.replicas()});
  order_.emplace(plan);
  int64_t flags = 0;
  int deepest = 0;
  size_t shards = 0;
  for (size_t i = 0; i < plan.size(); ++i) {
    add_unit(plan[i], policies[i]);
    present_begin_.push_back(flags);
    const auto& gradients = units_[i]->gradients;
    if (gradients) units_[i]->shard = shards++;
    if (gradients) flags += static_cast<int64_t>(gradients->present().size());
    deepest = std::max(deepest, plan[i].depth);
  }
  present_ = Tensor::zeros(backend, Shape{flags + 1}, DType::kI32, MemoryCategory::kOptimizerState);
  runtime_.overflow = present_.slice(flags, Shape{});
  flags_ = homes_->keep_flags(present_);
  make_arenas(deepest);
  homes_->allocate();
}

// Streams may still hold work that touches members; errors were reported where they were waited
// for.
FullySharded::~FullySharded() { drain_streams(); }

void FullySharded::drain_streams() {
  drain(streams_.all());
  drain(homes_->streams());
}

void FullySharded::add_unit(const PlannedUnit& plan, const UnitPolicy& policy) {
  const size_t unit = units_.size();
  units_.push_back(std::make_unique<Unit>(runtime_, plan, policy));
  if (units_.back()->gradients) {
    const std::vector<FlatParameter>& parameters =
        units_.back()->parameters.trainable()->layout.parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
      parameters[i].parameter->set_gradient_memory(
          [this, unit, i] { return gradient_memory(unit, i); });
    }
  }
  add_hooks(plan.modules, unit);
}

void FullySharded::add_hooks(const std::vector<Module*>& modules, size_t unit) {
  const DType own = units_[unit]->policy.param_dtype;
  const DType around = units_[units_[unit]->around]->policy.param_dtype;
  const bool casts = own != around;
  for (Module* module : modules) {
    ModuleHooks hooks;
    if (module == modules.front()) {
      hooks.pre_forward = [this, unit] { pre_forward(unit); };
      if (unit != kRootUnit) hooks.post_backward = [this, unit] { post_backward(unit); };
      if (casts) hooks.input_dtype = own;
    }
    if (module == modules.back()) {
      hooks.post_forward = [this, unit] { post_forward(unit); };
      hooks.pre_backward = [this, unit] { pre_backward(unit); };
      if (casts) hooks.output_dtype = around;
    }
    module->set_hooks(std::move(hooks));
  }
}

// Units of one depth share buffers in rotation. The root, alone at its depth, has one to itself: it
// lives through the whole step. The parts of the root are large, and run one after the other: one
// buffer serves all of them. A part that keeps its parameters in a lent one has its own.
void FullySharded::make_arenas(int deepest) {
  std::vector<std::vector<Unit*>> by_depth(static_cast<size_t>(deepest) + 1);
  std::vector<Unit*> in_turn, kept;
  for (const auto& unit : units_) {
    const UnitPolicy& policy = unit->policy;
    const bool keeps = policy.keeps_parameters() && !policy.resident();
    auto& users = !unit->part_of_root ? by_depth[static_cast<size_t>(unit->depth)]
                  : keeps             ? kept
                                      : in_turn;
    users.push_back(unit.get());
  }
  const auto in_flight = static_cast<size_t>(options_.units_in_flight);
  for (const auto& units : by_depth) make_arena(units, in_flight, size_t{kGradientBuffers});
  if (!in_turn.empty()) make_arena(in_turn, 1, 1);
  for (Unit* unit : kept) make_arena({unit}, 1, 1);
}

void FullySharded::make_arena(const std::vector<Unit*>& units, size_t gathered,
                              size_t gradient_buffers) {
  std::vector<UnitParameters*> parameters;
  std::vector<UnitGradients*> gradients;
  size_t kept_here = 0;  // with release_arena: until the end of backward
  for (Unit* unit : units) {
    unit->arena = arenas_.size();
    if (unit->parameters.arena_bytes() > 0) {
      parameters.push_back(&unit->parameters);
      kept_here += unit->policy.keeps_parameters();
    }
    if (unit->gradients && unit->gradients->arena_bytes() > 0) {
      gradients.push_back(&*unit->gradients);
    }
  }
  const auto share = [&](const auto& users, Communicator& group, size_t buffers,
                         MemoryCategory category) {
    size_t bytes = 0;
    for (const auto* user : users) bytes = std::max(bytes, user->arena_bytes());
    auto pool = std::make_unique<BufferPool>(group, backend(), std::min(users.size(), buffers),
                                             bytes, category, lifetime_of_buffers(options_));
    for (size_t i = 0; i < users.size(); ++i) users[i]->use_pool(*pool, static_cast<int>(i));
    return pool;
  };
  arenas_.push_back(
      {.parameters = share(parameters, mesh_.gather(), gathered + kept_here,
                           MemoryCategory::kUnshardedParameter),
       .gradients = share(gradients, mesh_.reduce(), gradient_buffers, MemoryCategory::kGradient)});
}

}  // namespace fsdp::comm
