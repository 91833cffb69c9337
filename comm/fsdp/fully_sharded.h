// Fully sharded data parallel training of a module tree: plans units, owns their memory and drives
// their state machines from module hooks. The schedule of one step, for blocks 0..n-1:
//
//   forward   root, [0]   compute 0 | gather 1      compute 1 | gather 2   ...   (root stays)
//   backward  [n-1]       gather n-2 | backward n-1   gather n-3 | reduce n-1 | backward n-2  ...
//
// The host issues everything ahead; events between the compute, gather and reduce streams keep the
// order. Issue order is part of the contract: the gather of unit i-1 before the reduce of unit i.
// Read next: comm/fsdp/unit.h (state machines), comm/fsdp/buffer_pool.h (arena).
// Not here: the optimizer (optim/), what a transformer is (models/).
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "comm/fsdp/unit.h"

namespace fsdp::comm {

class FullySharded {
 public:
  // Takes over the parameters of `root` (they must have no values yet) and its modules' hooks.
  // Collective over the groups; every rank passes the same plan and options.
  FullySharded(Module& root, const WrapPredicate& wrap, const FsdpOptions& options, Tape& tape,
               FsdpGroups groups);
  ~FullySharded();
  FullySharded(const FullySharded&) = delete;
  FullySharded& operator=(const FullySharded&) = delete;

  // Gives every element of the master shards its value: fill(parameter, first element, elements) is
  // called for each part of a parameter that this rank owns; no rank ever holds the model.
  using FillFunction =
      std::function<void(const Parameter& parameter, int64_t first, Tensor& elements)>;
  void initialise(const FillFunction& fill);

  // After Tape::backward: reduces what no hook reduced, makes the compute stream wait for all
  // reductions, agrees with the other ranks which parameters had a gradient, reshards.
  void finish_backward();
  // What the optimizer steps; one per unit, in unit order. Tensors stay the same for the lifetime.
  std::vector<OptimizerShard> optimizer_shards() const;
  // After the optimizer: gathers of the next step wait for it; gradients are forgotten.
  void finish_step();
  // After an evaluation, or to leave a step that threw: everything back to SHARDED and NONE.
  void reset();

  // Full values (or reduced gradients) of every parameter in the master dtype, one unit at a time.
  // Collective; `visit` is called on every rank.
  void visit_parameters(const std::function<void(const Parameter&, const Tensor& values)>& visit);
  void visit_gradients(const std::function<void(const Parameter&, const Tensor& values)>& visit);

  const std::vector<std::unique_ptr<Unit>>& units() const { return units_; }  // root first
  const FsdpOptions& options() const { return runtime_.options; }
  const FsdpGroups& groups() const { return runtime_.groups; }
  Backend& backend() const { return runtime_.backend; }

 private:
  void make_pools();
  void add_hooks(Module& module, size_t unit);
  void pre_forward(size_t unit);
  void post_forward(size_t unit);
  void pre_backward(size_t unit);
  void post_backward(size_t unit);
  void prefetch(size_t unit);
  void visit(bool gradients, const std::function<void(const Parameter&, const Tensor&)>& visit);
  void share_present_flags();

  std::unique_ptr<Stream> gather_stream_;
  std::unique_ptr<Stream> reduce_stream_;
  FsdpRuntime runtime_;
  std::vector<std::unique_ptr<Unit>> units_;
  std::vector<std::unique_ptr<BufferPool>> pools_;
  Tensor present_;                     // (all parameters), i32, in unit and layout order
  std::vector<int64_t> present_begin_;  // of each unit's flags
};

}  // namespace fsdp::comm
