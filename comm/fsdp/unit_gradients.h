// The gradients of one unit's trainable parameters.
//
//            accumulate()                 reduce(), reduce_part()
//   NONE ----------------------> ACCUMULATING ---------> REDUCED
//     ^                            ^   | (unsharded,        |  | (this rank's shard, averaged)
//     |                            |   |  this rank's)      |  |
//     |                            +---|--------------------+  |   accumulate(): a backward more;
//     +------------- clear() ----------+-----------------------+   reduce() adds to the shard
//
// Where the average across replicas was left for a last micro-step in which nothing came, the
// schedule accumulates zeros and reduces them.
// Backward writes weight gradients straight into one flat buffer in reduce_dtype; the
// reduce-scatter averages slot r of it into the shard of rank r; hybrid strategies then all-reduce
// the shard across replicas. With one rank per shard group (DDP) the buffer is the shard. Streams:
// kernels write on the compute stream, after the reduce of the buffer's last tenant (free_since);
// the reduce stream reads after `computed`, recorded in reduce(); the optimizer on the compute
// stream reads the shard after `reduced`.
#pragma once

#include <string>
#include <vector>

#include "comm/fsdp/divide.h"
#include "comm/fsdp/unit_parameters.h"

namespace fsdp::comm {

enum class GradientState : uint8_t { kNone, kAccumulating, kReduced };

class UnitGradients {
 public:
  // `options`: the unit's own; `segment`: its trainable one; both outlive this.
  UnitGradients(FsdpRuntime& runtime, std::string name, const FsdpOptions& options,
                const ParameterSegment& segment);

  GradientState state() const { return state_; }
  // Arena bytes that a backward or a reduce needs; 0 when the unit has memory of its own for both.
  size_t arena_bytes() const;
  void use_pool(BufferPool& pool, int preferred) {
    pool_ = &pool;
    preferred_ = preferred;
  }

  // False when no arena buffer is free (then nothing happened).
  bool accumulate();
  // Of the trainable parameter with this index in layout order; while ACCUMULATING.
  Tensor memory_of(size_t parameter) const;
  bool backward_pending() const;  // some use recorded in forward has not contributed yet
  // Takes the arena buffer that a reduce narrows into, where it needs one. False when none is free.
  bool ready_to_reduce();
  // Averages over the ranks into the shard, or adds to it what comes after an earlier reduce.
  // `last_micro_step`: also what accumulation had left of earlier ones. No-op without gradients.
  void reduce(bool last_micro_step);
  // The same for what is there while more is to come, which will be added: after several forwards,
  // the backward of the first leaves a part in every unit, and the arena is too small for all.
  void reduce_part();
  bool borrows_from(const BufferPool& arena) const { return lent() && pool_ == &arena; }
  // Whether nothing came in the last micro-step, with which the replicas would have been averaged.
  bool replicas_differ() const { return replicas_differ_; }
  // After the last micro-step: the compute stream may read the shard, zeros when nothing came.
  void complete();
  void clear();  // forgets everything, also a backward that was left half-way
  void forget_events() { reduced_ = nullptr; }  // all streams are idle

  // 1 for parameters that had a gradient since the last clear, in layout order.
  const std::vector<int32_t>& present() const { return present_; }
  const Tensor& shard() const { return shard_; }  // 1D: reduced gradient in the master's dtype

 private:
  bool lent() const { return buffer_ != BufferPool::kNone; }
  bool in_place() const { return shard_.storage() == unsharded_; }  // the average is the buffer
  void take_own_memory();
  void take_shard();
  void give_back_own_memory();
  bool borrow();
  void set_shard_aside();
  void note_present(bool more_to_come);
  void reduce_noted(bool last_micro_step);
  void find_overflow(const Tensor& gradients);
  Tensor reduce_input();
  Stream& reduce_scattered(Tensor input, bool last_micro_step);
  Stream& average_across_replicas(Tensor piece);
  void divide(Stream& stream, Tensor values, double divisor);

  FsdpRuntime& runtime_;
  std::string name_;
  const FsdpOptions& options_;
  const ParameterSegment& segment_;
  GradientDivision division_;
  bool keeps_unsharded_;  // in own_, for the whole step, instead of a lent buffer
  bool defer_replicas_;   // reduce-scatter each micro-step, all-reduce with the last

  GradientState state_ = GradientState::kNone;
  DType dtype_;                         // of the unsharded gradients
  std::shared_ptr<Storage> unsharded_;  // bound to own_ or to a lent buffer
  std::shared_ptr<CommBuffer> own_;
  BufferPool* pool_ = nullptr;
  int preferred_ = 0;
  int buffer_ = BufferPool::kNone;

  Tensor shard_;
  Tensor earlier_;  // in place: what was reduced before the backward that is in the buffer
  bool shard_filled_ = false;     // an earlier micro-step was reduced into it
  bool replicas_differ_ = false;  // its average across replicas was left for the last micro-step
  EventPtr reduced_;              // null before the first reduce
  std::vector<int32_t> present_;
};

}  // namespace fsdp::comm
