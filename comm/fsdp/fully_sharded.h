// Fully sharded data parallel training of a module tree: plans units, owns their memory and drives
// their state machines from module hooks. The schedule of one step, for blocks 0..n-1:
//
//   forward   root, [0]   compute 0 | gather 1      compute 1 | gather 2   ...   (root stays)
//   backward  [n-1]       gather n-2 | backward n-1   gather n-3 | reduce n-1 | backward n-2  ...
//
// Units may lie inside units: the outer one is gathered around the work of the inner ones, and
// every level of nesting has an arena of its own, so that neither waits for the other's buffers.
// The host issues everything ahead; events between the compute, gather and reduce streams keep the
// order. Issue order is part of the contract: the gather of unit i-1 before the reduce of unit i.
//
// To read comm/fsdp in order: options.h (the knobs, and the rules that follow), mesh.h (groups of
// ranks), policy.h and plan.h (which parameters make a unit), unit_options.h (units that differ);
// then this file and unit_parameters.h, unit_gradients.h (the state machines of a unit) with
// buffer_pool.h (the arena), divide.h (the average), scope.h; then fully_sharded.cpp (schedule)
// with unit_order.h (what is prefetched). fully_sharded_setup.cpp and fully_sharded_values.cpp are
// for the beginning and the end of a run, pytorch_shards.h for comparing plans. Not here: the
// collectives (comm/communicator.h), the optimizer (optim/), what a transformer is (models/).
#pragma once

#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "comm/fsdp/unit_gradients.h"
#include "comm/fsdp/unit_options.h"
#include "comm/fsdp/unit_order.h"

namespace fsdp::comm {

// The parameters that are gathered, computed with and reduced together.
struct Unit {
  std::string name;
  int depth;            // how many units are around it; the root's is 0
  size_t around;        // index of the innermost of them
  FsdpOptions options;  // its own
  UnitParameters parameters;
  std::optional<UnitGradients> gradients;  // absent when everything is frozen
  // Forwards whose backward has not come: uses that a recompute will record count only here.
  int open_forwards = 0;

  // `inner`: the group that keeps parameters after forward; null: none does.
  Unit(FsdpRuntime& runtime, const PlannedUnit& plan, const FsdpOptions& unit_options,
       Communicator* inner);
};

class FullySharded {
 public:
  // Takes over the parameters of `root` (they must have no values yet) and its modules' hooks.
  // Collective over `world`; every rank passes the same plan and options. The hooks and the memory
  // of the parameters end with this: the modules are not to be run or read afterwards.
  FullySharded(Module& root, const WrapPolicy& wrap, const FsdpOptions& options,
               Backend& backend, Communicator& world);
  ~FullySharded();
  FullySharded(const FullySharded&) = delete;
  FullySharded& operator=(const FullySharded&) = delete;

  // Gives every element of the master shards its value: fill(parameter, first element, elements) is
  // called for each part of a parameter that this rank owns; no rank ever holds the model.
  using FillFunction =
      std::function<void(const Parameter& parameter, int64_t first, Tensor& elements)>;
  void initialise(const FillFunction& fill);
  // The same, but only rank 0 calls `fill`, for whole parameters, one unit at a time; the others
  // receive their parts and may pass null (PyTorch's sync_module_states). Collective.
  void initialise_from_first_rank(const FillFunction& fill);

  // Before each forward of a step with several: whether it is the last (reduces what was deferred).
  void begin_micro_step(bool last) { last_micro_step_ = last; }
  // After Tape::backward, which must have reached the same units on every rank (a parameter may be
  // absent on some ranks, a whole unit may not): reduces what no hook reduced, makes the compute
  // stream wait for all reductions, agrees with the other ranks which parameters had a gradient,
  // reshards.
  void finish_backward();
  // After finish_backward, with detect_overflow: 1 where on any rank an own gradient was not finite
  // or beyond the range of param_dtype. (), i32, on the compute stream.
  const Tensor& overflow() const { return runtime_.overflow; }
  // What the optimizer steps; one per unit, in unit order. Tensors stay the same for the lifetime.
  std::vector<OptimizerShard> optimizer_shards() const;
  // After the optimizer: gathers of the next step wait for it; gradients are forgotten.
  void finish_step();
  // After an evaluation: everything back to SHARDED and NONE. Between the micro-steps of a step it
  // drops the gradients so far.
  void reset();
  // Leaves a step that threw on every rank: waits for all streams, forgets their errors, reset().
  void recover();

  // Full values (or reduced gradients) of every parameter in the master dtype, one unit at a time.
  // Collective; `visit` is called on every rank. `wanted`: only of some, the same on all ranks;
  // what is frozen is not gathered for trainable ones, nor the other way round.
  using Visitor = std::function<void(const Parameter&, const Tensor& values)>;
  using Wanted = std::function<bool(const Parameter&)>;
  void visit_parameters(const Visitor& visit, const Wanted& wanted = nullptr);
  void visit_gradients(const Visitor& visit);

  const std::vector<std::unique_ptr<Unit>>& units() const { return units_; }  // root first
  const FsdpOptions& options() const { return runtime_.options; }
  const Mesh& mesh() const { return *mesh_; }
  Backend& backend() const { return runtime_.backend; }

 private:
  // Setup.
  void add_unit(const PlannedUnit& plan, const FsdpOptions& options);
  Communicator* inner_group(const PlannedUnit& plan, const FsdpOptions& options);
  void make_arena(int depth);
  void add_hooks(Module& module, size_t unit);
  // Schedule: hooks, what they move, and the end of a backward.
  void pre_forward(size_t unit);
  void post_forward(size_t unit);
  void pre_backward(size_t unit);
  void post_backward(size_t unit);
  void demand(size_t unit);
  void prefetch(std::optional<size_t> unit);
  bool kept(const Unit& unit) const;
  void give_back_parameters(Unit& unit);
  void reduce(Unit& unit);
  Tensor gradient_memory(size_t unit, size_t parameter);
  void accumulate(Unit& unit);
  void free_gradient_buffers(int depth);
  void check_same_order();
  void share_present_flags();
  void clear_overflow();
  void drain_streams();
  // Values.
  using SegmentFill = std::function<void(ParameterSegment& segment)>;
  void fill_segments(const SegmentFill& fill);
  void fill_own_part(ParameterSegment& segment, const FillFunction& fill);
  void receive_own_part(ParameterSegment& segment, const FillFunction& fill);

  struct Arena {
    std::unique_ptr<BufferPool> parameters, gradients;
    void give_back() const {
      parameters->give_back();
      gradients->give_back();
    }
  };

  std::unique_ptr<Mesh> mesh_;
  std::map<int, std::unique_ptr<Communicator>> inner_;  // by size
  std::unique_ptr<Communicator> everyone_;
  std::unique_ptr<Stream> gather_stream_;
  std::unique_ptr<Stream> reduce_stream_;  // null: the gather stream serves both
  std::unique_ptr<Stream> replica_stream_;
  std::unique_ptr<Communicator> world_;  // on the compute stream: flags, initial values
  FsdpRuntime runtime_;
  std::vector<std::unique_ptr<Unit>> units_;
  std::optional<UnitOrder> order_;
  std::vector<Arena> arenas_;  // by depth
  // (all trainable parameters, and the overflow flag), i32, in unit and layout order.
  Tensor present_;
  std::vector<int64_t> present_begin_;  // of each unit's flags
  bool last_micro_step_ = true;
  std::exception_ptr fill_error_;  // of rank 0, in initialise_from_first_rank
  bool order_checked_ = false;
  bool in_backward_ = false;
};

}  // namespace fsdp::comm
