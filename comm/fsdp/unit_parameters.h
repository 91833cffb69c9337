// The parameters of one unit: one flat buffer per segment, of which every parameter is an aligned
// view; no copy-in, no copy-out. Trainable and frozen parameters are two segments, each padded and
// sharded by itself: a frozen one is kept in the compute dtype and has no gradient and no optimizer
// state.
//
//             unshard()              wait_unsharded()
//   SHARDED ------------> GATHERING -----------------> UNSHARDED
//    ^  ^  ^                |   ^                       |  |  |
//    |  |  +--- reshard() --+   | unshard()             |  |  |
//    |  |                       |                       |  |  |
//    |  +---- expire() ---- RESHARDED <-----------------+  |  |   reshard_after_forward(),
//    |                                                     |  |   with an inner group
//    +-------- reshard(), reshard_after_forward() ---------+  |
//    +-------- expire(), of resident values ------------------+
//
//   SHARDED    1/N of the values on each of the N ranks of a shard group
//   GATHERING  a buffer of all values is being filled by the gather stream
//   UNSHARDED  the parameters' values are there for the compute stream
//   RESHARDED  1/n of the values on each of the n ranks of an inner group (hpZ): the next gather is
//              inside that group
//
// A unit whose policy is resident has its buffer for itself: reshard() leaves it UNSHARDED. With
// one rank in a shard group there is nothing to gather: UNSHARDED from the start, for ever, where
// the optimizer writes the values there (ShardHome::optimizer_writes_slot).
//
// Streams: a buffer is written after the compute stream is done with the buffer's last tenant
// (BufferPool::free_since). This rank's slot is filled from the shard's home (home/shard_home.h);
// the gather stream fills the others; the compute stream reads the buffer after `gathered_`.
// reshard() from GATHERING makes the compute stream wait for the gather first.
#pragma once

#include <string>
#include <vector>

#include "comm/fsdp/options.h"
#include "comm/fsdp/runtime.h"
#include "core/flat_layout.h"

namespace fsdp::comm {

enum class ParameterState : uint8_t { kSharded, kGathering, kUnsharded, kResharded };

// One flat buffer: parameters that are all trainable or all frozen.
struct ParameterSegment {
  ParameterSegment(FlatLayout flat_layout, bool is_trainable)
      : layout(std::move(flat_layout)), trainable(is_trainable) {}

  FlatLayout layout;
  bool trainable;
  std::shared_ptr<ShardHome> home;     // of this rank's shard
  Tensor master;                       // 1D (shard), at home; compute dtype when frozen
  std::shared_ptr<Storage> unsharded;  // compute dtype; the parameters are views of it
  Tensor inner_shard;                  // 1D: part kept for the backward's smaller gather
  int64_t arena_offset = 0;            // bytes, in a lent buffer
};

class UnitParameters {
 public:
  // `policy` outlives this.
  UnitParameters(FsdpRuntime& runtime, std::string name, const std::vector<Parameter*>& parameters,
                 const UnitPolicy& policy);

  ParameterState state() const { return state_; }
  bool has_values() const {
    return state_ == ParameterState::kGathering || state_ == ParameterState::kUnsharded;
  }
  // Arena bytes that unsharding needs (0 when resident).
  size_t arena_bytes() const { return resident_ ? 0 : arena_bytes_; }
  void use_pool(BufferPool& pool, int preferred) {
    pool_ = &pool;
    preferred_ = preferred;
  }

  // Issues the gather. False when no arena buffer is free (then nothing happened).
  bool unshard();
  void wait_unsharded();  // the compute stream waits for the gather
  void reshard();
  void reshard_after_forward();
  // The masters have new values: what was gathered from the old ones is out of date.
  void expire();
  // The same when somebody else than the optimizer wrote them, on their backends' compute streams.
  void written();
  void forget_events();  // all streams are idle

  const std::vector<ParameterSegment>& segments() const { return segments_; }
  const ParameterSegment* trainable() const;  // null when everything is frozen

 private:
  void add_segment(const std::vector<Parameter*>& parameters, bool trainable);
  ShardSpec spec_of(const ParameterSegment& segment) const;
  bool borrow_buffer();
  void gather_segment(const ParameterSegment& segment, const EventPtr& free);
  void gather_inner_shard(const ParameterSegment& segment, const EventPtr& free);
  Tensor flat(const ParameterSegment& segment) const;
  Tensor slot(const ParameterSegment& segment) const;        // this rank's, of a gather
  Tensor inner_slot(const ParameterSegment& segment) const;  // the same inside the inner group

  FsdpRuntime& runtime_;
  std::string name_;
  const UnitPolicy& policy_;
  bool resident_;
  bool always_unsharded_ = false;  // one rank has all values, and the optimizer writes them
  Communicator* inner_;            // null: there is no inner group
  std::vector<ParameterSegment> segments_;
  size_t arena_bytes_ = 0;
  std::vector<std::shared_ptr<CommBuffer>> resident_memory_;

  ParameterState state_ = ParameterState::kSharded;
  BufferPool* pool_ = nullptr;
  int preferred_ = 0;
  int buffer_ = BufferPool::kNone;
  EventPtr gathered_;
  EventPtr inner_copied_;  // RESHARDED: since when inner_shard has its values
};

}  // namespace fsdp::comm
