// Fully sharded data parallel training of a module tree: plans units, owns their memory and drives
// their state machines from hooks. README.md draws the schedule of one step.
//
// Units may lie inside units: the outer one is gathered around the work of the inner ones, and
// every level of nesting has an arena of its own, so that outer and inner units never wait for each
// other's buffers. So have the parts of the root, which are larger than blocks. The host issues
// everything ahead; events between the compute, gather and reduce streams keep the order. Issue
// order is part of the contract: the gather of unit i-1 before the reduce of unit i.
//
// Requests go down only: the modules' hooks and the parameters' requests for gradient memory reach
// FullySharded, which moves units along their edges; a unit never calls back.
// Where to start and what comes next: README.md. Not here: the values of parameters
// (tools/engine/sharded_values.h), the optimizer (optim/), what a transformer is (models/).
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "comm/fsdp/plan.h"
#include "comm/fsdp/unit_gradients.h"

namespace fsdp::comm {

// The parameters that are gathered, computed with and reduced together.
struct Unit {
  Unit(FsdpRuntime& runtime, const PlannedUnit& plan, const UnitPolicy& unit_policy);

  std::string name;
  int depth;                           // how many units are around it; the root's is 0
  size_t around;                       // index of the innermost of them
  bool part_of_root, awaits_backward;  // plan.h
  UnitPolicy policy;
  UnitParameters parameters;
  std::optional<UnitGradients> gradients;  // absent where nothing is trained
  size_t shard = 0;                        // its place among the optimizer's, if there are any
  // How many forwards still wait for their backward. Parameter::pending_uses() cannot say this
  // under recompute: there a forward records its uses only when backward runs it again.
  int open_forwards = 0;
  size_t arena = 0;      // index of the one whose buffers it borrows
  bool updated = false;  // in the backward of this step
};

inline constexpr size_t kRootUnit = 0;

class FullySharded {
 public:
  // Sets the hooks of the modules of `root`, and gives its parameters, which have no values yet,
  // memory on `backend`. Collective over `world`; every rank passes the same plan and options.
  // Hooks and memory end with this object: the modules are not to be run or read afterwards.
  FullySharded(Module& root, const WrapPolicy& wrap, const FsdpOptions& options, Backend& backend,
               Communicator& world);
  ~FullySharded();
  FullySharded(const FullySharded&) = delete;
  FullySharded& operator=(const FullySharded&) = delete;

  // Before each micro-step. `last`: its reductions include what earlier micro-steps deferred.
  // `ranks_with_pass`, with fixed_order: only the gradients of ranks 0 to n - 1 are part of the
  // sum, though all ranks run the same backward; absent: those of all. The same on all ranks.
  void begin_micro_step(bool last, std::optional<int> ranks_with_pass = {}) {
    last_micro_step_ = last;
    runtime_.ranks_with_pass = ranks_with_pass;
  }
  // After Tape::backward, which must have reached the same units on every rank (a parameter may be
  // absent on some ranks, a whole unit may not): reduces what no hook reduced, makes the compute
  // stream wait for all reductions, agrees with the other ranks which parameters had a gradient,
  // reshards.
  void finish_backward();
  // After finish_backward, with detect_overflow: 1 when on any rank a gradient of that rank was not
  // finite or beyond the range of param_dtype. (), i32, on the device.
  const Tensor& overflow() const { return runtime_.overflow; }
  // What the optimizer steps; one for each unit that has trainable parameters: the parts of the
  // root first, in the root's place, then in unit order. So the sum of a norm in fixed order does
  // not depend on whether the root is split. Tensors stay the same for the lifetime.
  std::vector<OptimizerShard> optimizer_shards() const;
  // With update_in_backward, before the first step: who updates. It is called in the backward of
  // the last micro-step for each of the optimizer's shards, once, by its place among them: when its
  // unit is complete, and where ranks reduce on the device that updates, behind the next one, so
  // that the compute stream does not wait for a reduction.
  void set_update(std::function<void(size_t shard)> update) { update_ = std::move(update); }
  // When the optimizer is made: no more tensors will come and go with the shards. Before values are
  // written.
  void allocate_pages() { homes_->allocate_pages(); }
  // After the optimizer: gathers of the next step wait for it; gradients are forgotten.
  void finish_step();
  // After an evaluation: no unit stays unsharded, except resident ones; gradients are forgotten.
  // Values that an inner group keeps stay RESHARDED, as they are right. Between the micro-steps of
  // a step it drops the gradients so far.
  void reset();
  // Leaves a step that threw on every rank: waits for all streams, forgets their errors, reset(),
  // and all gathered values are out of date.
  void recover();
  // Around what somebody else than the optimizer writes into the masters, on their backend's
  // compute stream.
  void before_masters_are_written() { homes_->before_masters_are_written(); }
  void masters_written();
  // Finished steps. Stochastic rounding draws by this count: set it before the masters are written.
  uint32_t updates() const { return homes_->updates(); }
  void set_updates(uint32_t updates) { homes_->set_updates(updates); }

  const std::vector<std::unique_ptr<Unit>>& units() const { return units_; }  // root first
  const FsdpOptions& options() const { return options_; }
  const Mesh& mesh() const { return mesh_; }
  Backend& backend() const { return runtime_.backend; }

 private:
  // Setup.
  void add_unit(const PlannedUnit& plan, const UnitPolicy& policy);
  void add_hooks(const std::vector<Module*>& modules, size_t unit);
  void make_arenas(int deepest);
  void make_arena(const std::vector<Unit*>& units, size_t gathered, size_t gradient_buffers);
  // Hooks, and what they move.
  void pre_forward(size_t unit);
  void post_forward(size_t unit);
  void pre_backward(size_t unit);
  void post_backward(size_t unit);
  Tensor gradient_memory(size_t unit, size_t parameter);
  void unshard_now(size_t unit);
  void prefetch(std::optional<size_t> unit);
  void give_back_parameters(Unit& unit);
  void accumulate(Unit& unit);
  void reduce(size_t unit);
  void free_gradient_buffers(size_t arena);
  // Updates in backward.
  void update_soon(size_t unit);
  void update_units(size_t most_waiting);
  void update_rest();
  // The end of a backward and of a step.
  void check_same_order();
  void hand_to_optimizer();
  void share_present_flags();
  EventPtr share_present_flags(size_t unit);
  void clear_overflow();
  void give_back_arenas();
  void drain_streams();

  struct Arena {
    std::unique_ptr<BufferPool> parameters, gradients;
  };

  FsdpOptions options_;  // of the schedule; what a unit does is its policy
  Mesh mesh_;
  CommStreams streams_;
  std::unique_ptr<ShardHomes> homes_;
  FsdpRuntime runtime_;
  std::vector<std::unique_ptr<Unit>> units_;
  std::optional<UnitOrder> order_;
  std::vector<Arena> arenas_;  // one for each depth, then those of the parts of the root
  // (all trainable parameters, and the overflow flag), i32, in unit and layout order.
  Tensor present_;
  Tensor flags_;                        // the same, where the optimizer reads it
  std::vector<int64_t> present_begin_;  // of each unit's flags
  std::function<void(size_t shard)> update_;
  struct Waiting {  // reduced, not updated
    size_t unit;
    EventPtr flags;
  };
  std::deque<Waiting> waiting_;
  bool last_micro_step_ = true;
  bool order_checked_ = false;
  bool in_backward_ = false;
};

}  // namespace fsdp::comm
