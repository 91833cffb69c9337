// The gradients of one unit's trainable parameters, and the memory they are in. Backward writes
// weight gradients straight into one flat buffer; a reduction averages it into the shard.
//
//           accumulate()                reduce()              accumulate()
//   NONE ---------------> ACCUMULATING -----------> REDUCED <---------------> ADDING_TO_REDUCED
//                              |                       ^          reduce()
//                     reduce() |                       | reduce()
//                              v      accumulate()     |
//                          SCATTERED <---------> ADDING_TO_SCATTERED
//                                       reduce()
//
//   NONE                 nothing came in this step; clear() leads here from every state
//   ACCUMULATING         the unsharded buffer holds this rank's gradients; the shard holds nothing
//   REDUCED              the shard holds the average over all ranks of what came
//   SCATTERED            the shard holds the average over its shard group only. With replicas and
//                        reduce_scatter_each or in fixed_order, micro-steps before the last lead
//                        here. In fixed_order this rank has only the part that it adds up
//   ADDING_TO_REDUCED    accumulating again; the shard holds what was REDUCED before
//   ADDING_TO_SCATTERED  accumulating again; the shard holds what was SCATTERED before
//
// The reduced shard goes to its home (home/shard_home.h), where the optimizer reads it.
//
// reduce_part() takes the edges of a reduce() before the last micro-step, in the middle of a
// backward: the schedule needs the buffer for another unit. hand_to_optimizer() changes no state.
//
// The unsharded buffer is lent by the arena from accumulate() to reduce(), or the unit's own
// (policy: keeps_gradients). With one rank per shard group (DDP) it is the shard too (policy:
// averages_in_place): then a second backward first sets aside what the first one left there.
// Streams: kernels write the buffer on the compute stream, after the reduction of its last tenant
// (BufferPool::free_since); the optimizer reads the shard on the compute stream after `reduced_`.
// Between the two: gradient_reduction.h.
//
// Units that are updated in backward (policy: gives_gradients_back) keep nothing until the step's
// end. From reduce() to updated() the shard has memory of its own, which is allocated and dropped,
// or a home has taken it; where it is the unsharded buffer, that stays borrowed.
#pragma once

#include <string>
#include <vector>

#include "comm/fsdp/gradient_reduction.h"
#include "comm/fsdp/unit_parameters.h"

namespace fsdp::comm {

enum class GradientState : uint8_t {
  kNone,
  kAccumulating,
  kReduced,
  kScattered,
  kAddingToReduced,
  kAddingToScattered
};

class UnitGradients {
 public:
  // `segment`: the unit's trainable one. It and `policy` outlive this.
  UnitGradients(FsdpRuntime& runtime, std::string name, const UnitPolicy& policy,
                const ParameterSegment& segment);

  GradientState state() const { return state_; }
  // Arena bytes that a backward or a reduce needs; 0 when the unit has memory of its own for both.
  size_t arena_bytes() const;
  void use_pool(BufferPool& pool, int preferred) {
    pool_ = &pool;
    preferred_ = preferred;
  }
  bool holds_buffer() const { return buffer_ != BufferPool::kNone; }  // of the arena

  // False when no arena buffer is free (then nothing happened).
  bool accumulate();
  // Of the trainable parameter with this index in layout order, while gradients accumulate.
  Tensor memory_of(size_t parameter) const;
  bool backward_pending() const;  // some use recorded in forward has not contributed yet
  // Takes the arena buffer that a reduce narrows into, where it needs one. False when none is free.
  bool borrow_for_reduce();
  // Nothing happens where nothing accumulates. `last`: of a step's micro-steps.
  void reduce(bool last);
  // Reduces what has come so far while more is to come: after several forwards, the backward of the
  // first leaves a part in every unit, and the arena is too small for all.
  void reduce_part();
  // After the last micro-step: the compute stream may read the shard, zeros when nothing came.
  void hand_to_optimizer();
  // The same for an update in backward, of this unit alone, with its flags; then the optimizer has
  // been given the update.
  void hand_over(const ShardHome::Flags& flags);
  void updated();
  bool accumulating() const;
  void clear();  // forgets everything, also a backward that was left half-way
  void forget_events() { reduced_ = nullptr; }  // all streams are idle

  // 1 for parameters that had a gradient since the last clear, in layout order.
  const std::vector<int32_t>& present() const { return present_; }
  // 1D: reduced gradient in sum_dtype: where the optimizer reads it, and where it is always.
  Tensor shard() const { return home_.for_optimizer().gradient; }
  const Tensor& stored() const { return home_.stored().gradient; }

 private:
  void allocate_unsharded();
  void release_unsharded();
  void allocate_shard();
  bool borrow();
  void give_buffer_back(EventPtr done);
  bool shard_in_buffer() const { return policy_.averages_in_place && !policy_.keeps_gradients(); }
  void set_shard_aside();
  void note_present(bool more_to_come);
  void run_reduction(bool last);

  FsdpRuntime& runtime_;
  std::string name_;
  const UnitPolicy& policy_;
  const FlatLayout& layout_;
  ShardHome& home_;
  GradientReduction reduction_;

  GradientState state_ = GradientState::kNone;
  std::shared_ptr<Storage> unsharded_;  // in gradient_dtype; bound to own_ or to a lent buffer
  std::shared_ptr<CommBuffer> own_;     // with keeps_gradients
  BufferPool* pool_ = nullptr;
  int preferred_ = 0;
  int buffer_ = BufferPool::kNone;

  Tensor shard_;      // what reductions write; has memory while one is enqueued, or longer
  Tensor set_aside_;  // averages_in_place, ADDING_TO_REDUCED: what was reduced before
  EventPtr reduced_;  // null before the first reduce
  std::vector<int32_t> present_;
};

}  // namespace fsdp::comm
