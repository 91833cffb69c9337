// The parameters of one unit: one flat buffer per segment, of which every parameter is an aligned
// view; no copy-in, no copy-out.
//
//            unshard()              wait_unsharded()
//   SHARDED ----------> GATHERING ------------------> UNSHARDED
//     ^  ^                |   ^                         |   |
//     |  +----------------+---|-------------------------+   |
//     |   reshard(), reshard_after_forward();               |
//     |   mark_updated() when the values are resident       |
//     |                       |                             |
//     |                       | unshard()                   |
//     +------------------ RESHARDED <-----------------------+
//       mark_updated()                reshard_after_forward() with an inner group (hpZ)
//
// RESHARDED is kSharded with `inner_kept_` set: every rank of the inner group keeps a part of the
// unit's values, and the next gather is inside that group. mark_updated() says they are out of
// date. With one rank per shard group there is nothing to gather: UNSHARDED from the start, for
// ever. reshard() from GATHERING: the compute stream waits for the gather first. Resident values
// stay after it: UNSHARDED until mark_updated(). Trainable and frozen parameters are two segments,
// each padded and sharded by itself: a frozen one is kept in the compute dtype and has no gradient
// and no optimizer state. Streams: the cast into this rank's slot and the all-gather run on the
// gather stream. It writes a buffer after the compute stream is done with the buffer's last tenant
// (free_since); the compute stream reads it after `gathered_`.
//
// [Note: who holds resident values] Without sharding between uses the unsharded buffer is the
// unit's own, and where its dtype is the master's, the master is a slice of it: nothing is held
// twice. reshard() then gives nothing back; mark_updated(), after the optimizer, says that the
// slots of other ranks are stale: SHARDED, until the next gather.
//
// [Note: rounding by chance] With rounding_seed a master becomes bf16 by stochastic rounding: what
// the model computes with is the master on average, however small the updates are. The draws are of
// the update's number, not of the gather: every gather of a step, on every replica and under every
// strategy, rounds a parameter alike. Only here and not in the optimizer, whose fused copy would be
// a second place: a resident copy then costs a pass of 6 bytes a parameter, after the update.
#pragma once

#include <string>
#include <vector>

#include "comm/fsdp/buffer_pool.h"
#include "comm/fsdp/mesh.h"
#include "comm/fsdp/options.h"
#include "core/flat_layout.h"

namespace fsdp::comm {

enum class ParameterState : uint8_t { kSharded, kGathering, kUnsharded };

// What all units of a model share. Owned by FullySharded.
struct FsdpRuntime {
  Backend& backend;
  FsdpOptions options;  // of all; those of a unit: Unit::options
  Mesh& mesh;
  Stream& gather_stream;
  Stream& reduce_stream;
  Stream& replica_stream;
  uint32_t updates = 0;                   // steps finished: what the draws of rounding are of
  EventPtr parameters_updated = nullptr;  // the optimizer's last write to the masters; may be null
  Communicator* everyone = nullptr;       // all ranks on the reduce stream, where order demands it
  Tensor overflow = {};  // (), i32: set by a rank's own gradients, until it is shared
};

// One flat buffer: parameters that are all trainable or all frozen.
struct ParameterSegment {
  ParameterSegment(FlatLayout flat_layout, bool is_trainable)
      : layout(std::move(flat_layout)), trainable(is_trainable) {}

  FlatLayout layout;
  bool trainable;
  Tensor master;                       // 1D (shard): f32/f64; compute dtype when frozen
  std::shared_ptr<Storage> unsharded;  // compute dtype; the parameters are views of it
  Tensor copy;                         // 1D: where no gather casts the master (one shard)
  std::vector<ParameterRun> runs;      // of the master, where it is rounded by chance; else empty
  Tensor inner_shard;                  // 1D: part kept for the backward's smaller gather
  int64_t arena_offset = 0;            // bytes, in a lent buffer
};

class UnitParameters {
 public:
  // `inner`: the group that keeps the parameters between forward and backward; null: none does.
  // `options`: the unit's own; they outlive this.
  UnitParameters(FsdpRuntime& runtime, std::string name, const std::vector<Parameter*>& parameters,
                 const FsdpOptions& options, Communicator* inner);

  ParameterState state() const { return state_; }
  bool resident() const { return resident_; }
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
  // The same, but with an inner group keeps this rank's part of it for the next unshard().
  void reshard_after_forward();
  // Resident values of other ranks' slots are out of date: the optimizer wrote the masters.
  void mark_updated();
  void forget_events() { gathered_ = inner_kept_ = nullptr; }  // all streams are idle

  const std::vector<ParameterSegment>& segments() const { return segments_; }
  std::vector<ParameterSegment>& segments() { return segments_; }
  const ParameterSegment* trainable() const;  // null when everything is frozen
  // After a master was written from outside: refreshes a resident copy in the compute dtype.
  void master_changed();
  // Whether the copy is to be refreshed so after the optimizer too, which otherwise writes it.
  bool rounds_by_chance() const;
  // The full values behind one shard per rank (masters, or reduced gradients), in temporary memory:
  // for saving and checking. Collective.
  Tensor gather_shards(const ParameterSegment& segment, const Tensor& shard);

 private:
  void add_segment(const std::vector<Parameter*>& parameters, bool trainable);
  void gather_segment(ParameterSegment& segment);
  void narrow(Stream& stream, const ParameterSegment& segment, Tensor& out);
  Tensor flat(const ParameterSegment& segment) const;
  Tensor slot(const ParameterSegment& segment, const Tensor& flat) const;

  FsdpRuntime& runtime_;
  std::string name_;
  const FsdpOptions& options_;
  bool resident_;
  Communicator* inner_;
  std::vector<ParameterSegment> segments_;
  size_t arena_bytes_ = 0;
  std::vector<std::shared_ptr<CommBuffer>> resident_memory_;

  ParameterState state_ = ParameterState::kSharded;
  BufferPool* pool_ = nullptr;
  int preferred_ = 0;
  int buffer_ = BufferPool::kNone;
  EventPtr gathered_;
  EventPtr inner_kept_;  // set while inner_shard holds this step's values
};

}  // namespace fsdp::comm
