// One FSDP unit: the parameters that are gathered, computed with and reduced together, as one flat
// buffer of which every parameter is an aligned view. No copy-in, no copy-out.
//
// Parameters (ParameterState)              Gradients (GradientState)
//
//        unshard()      wait_unsharded()          gradient_memory()            reduce()
//   SHARDED --> GATHERING --> UNSHARDED      NONE -----> ACCUMULATING -----> REDUCED
//      ^                         |             ^     (unsharded, this rank)   | (shards, average)
//      +-------- reshard() ------+             +------- clear_gradients() ----+
//
// Streams: the cast into this rank's slot and the all-gather run on the gather stream, the reduce on
// the reduce stream, kernels on the compute stream. Who may touch an arena buffer when:
//  - gather stream writes it   after the compute stream is done with its last tenant (free_since)
//  - compute stream reads it   after `gathered_`
//  - compute stream writes gradients after the reduce of the buffer's last tenant (free_since)
//  - reduce stream reads it    after `computed` (recorded in reduce())
// Units whose strategy keeps parameters resident stay UNSHARDED and all edges are no-ops.
#pragma once

#include <string>
#include <vector>

#include "comm/fsdp/buffer_pool.h"
#include "comm/fsdp/options.h"
#include "comm/fsdp/plan.h"
#include "core/flat_layout.h"

namespace fsdp::comm {

enum class ParameterState : uint8_t { kSharded, kGathering, kUnsharded };
enum class GradientState : uint8_t { kNone, kAccumulating, kReduced };

// What all units of a model share. Owned by FullySharded.
struct FsdpRuntime {
  Backend& backend;
  FsdpOptions options;
  FsdpGroups groups;
  Stream& gather_stream;
  Stream& reduce_stream;
  EventPtr parameters_updated;  // the optimizer's last write to the master shards; may be null
};

// The arenas a unit borrows from; null where its strategy needs none.
struct UnitPools {
  BufferPool* parameters = nullptr;
  BufferPool* gradients = nullptr;
  int preferred = 0;  // buffer index to ask for
};

class Unit final : public GradientOwner {
 public:
  Unit(FsdpRuntime& runtime, PlannedUnit plan, const FlatLayout& layout);
  void set_pools(UnitPools pools);

  const std::string& name() const { return plan_.name; }
  const FlatLayout& layout() const { return layout_; }
  ParameterState parameter_state() const { return parameter_state_; }
  GradientState gradient_state() const { return gradient_state_; }
  bool resident() const { return resident_; }
  size_t unsharded_bytes() const;           // of parameters, with padding
  size_t unsharded_gradient_bytes() const;
  int shard_index() const { return resident_ ? 0 : runtime_.groups.gather.rank(); }

  // ---- Parameters ----
  // Issues the gather. False when no arena buffer is free (then nothing happened).
  bool unshard();
  void wait_unsharded();  // the compute stream waits for the gather
  void reshard();

  // ---- Gradients ----
  Tensor gradient_memory(Parameter& parameter) override;
  bool backward_pending() const;  // some use recorded in forward has not contributed yet
  // Averages over the ranks: into the shard, or in place where replicated. No-op without gradients.
  void reduce();
  const EventPtr& reduced() const { return reduced_; }  // null before the first reduce
  // 1 for parameters that had a gradient since the last clear, in layout order.
  const std::vector<int32_t>& present() const { return present_; }
  void clear_gradients();

  // After the master was written from outside: refreshes a resident copy in the compute dtype.
  void master_changed();
  const Tensor& master() const { return master_; }
  // State for the optimizer; `present` is a view of the flags agreed by all ranks.
  OptimizerShard optimizer_shard(const Tensor& present) const;
  // The full values of all parameters (or reduced gradients) in the master dtype, gathered into
  // temporary memory: for saving and checking. Collective.
  Tensor gather_full(bool gradients);

 private:
  Tensor own_slot(const Tensor& flat) const;
  void bind_resident();

  FsdpRuntime& runtime_;
  PlannedUnit plan_;
  FlatLayout layout_;
  bool resident_;
  UnitPools pools_;

  ParameterState parameter_state_ = ParameterState::kSharded;
  Tensor master_;                // 1D: this rank's shard, or everything when resident
  std::shared_ptr<Storage> unsharded_;  // param_dtype; all parameters are views of it
  Tensor copy_;                  // 1D: resident compute values when their dtype is not the master's
  int parameter_buffer_ = BufferPool::kNone;
  EventPtr gathered_;

  GradientState gradient_state_ = GradientState::kNone;
  Tensor gradient_;              // 1D: reduced gradient in the master dtype
  std::shared_ptr<CommBuffer> gradient_memory_;  // behind gradient_ when replicated
  std::shared_ptr<Storage> unsharded_gradient_;  // reduce_dtype
  int gradient_buffer_ = BufferPool::kNone;
  bool shard_holds_gradient_ = false;  // an earlier micro-batch was reduced into the shard
  EventPtr reduced_;
  std::vector<int32_t> present_;
};

}  // namespace fsdp::comm
