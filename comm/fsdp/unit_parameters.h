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
// one rank in a shard group there is nothing to gather: UNSHARDED from the start, for ever, unless
// masters are offloaded.
//
// Streams: the gather stream writes a buffer after the compute stream is done with the buffer's
// last tenant (BufferPool::free_since); the compute stream reads it after `gathered_`. reshard()
// from GATHERING makes the compute stream wait for the gather first. What is offloaded comes on a
// stream of its own, after the host has `updated_` it; the gather stream goes on after `fetched_`.
//
// [Note: who holds resident values] Where the dtype of a resident buffer is the master's, the
// master is a slice of it: nothing is held twice.
//
// [Note: rounding by chance] With rounding_seed a master becomes bf16 by stochastic rounding: what
// the model computes with is the master on average, however small the updates are. The random
// numbers depend on the number of the update, not on the gather: every gather of a step, on every
// replica and under every strategy, rounds a parameter alike. Rounding is done only here, not in
// the optimizer too; the price is one pass of 6 bytes per parameter for resident copies.
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
  bool on_host = false;                // master and narrow_master are, or in a file of the host
  Tensor master;                       // 1D (shard): f32/f64; compute dtype when frozen
  std::shared_ptr<Storage> unsharded;  // compute dtype; the parameters are views of it
  Tensor narrow_master;  // 1D: the master in the compute dtype, where no gather casts it (one
                         // shard, or on the host)
  Tensor device_shard;   // 1D: what the host has, in the compute dtype; with offload: optimizer
  std::vector<ParameterRun> runs;  // of the master, where it is rounded by chance; else empty
  Tensor inner_shard;              // 1D: part kept for the backward's smaller gather
  int64_t arena_offset = 0;        // bytes, in a lent buffer
  // With offload to a file, where master and narrow_master are: the same while the host works on
  // them, with what else the optimizer needs of the shard. Null: frozen, or no file.
  std::unique_ptr<PagedTensors> paged;
  Tensor master_here, narrow_here;
  // What the optimizer writes.
  const Tensor& updated_master() const { return paged ? master_here : master; }
  const Tensor& updated_narrow() const { return paged ? narrow_here : narrow_master; }
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
  void forget_events() {  // all streams are idle
    gathered_ = inner_copied_ = updated_ = fetched_ = nullptr;
    for (const ParameterSegment& s : segments_) {
      if (s.paged) s.paged->forget_events();
    }
  }

  // With offload. The host has been given the update of the trainable shard, number `update`; in a
  // file it has this shard still in its memory.
  void updated_on_host(uint32_t update);
  // Somebody else wrote the shards, on the compute streams of their backends.
  void written_on_host();

  const std::vector<ParameterSegment>& segments() const { return segments_; }
  const ParameterSegment* trainable() const;  // null when everything is frozen
  // Makes the narrow master again, on the compute stream, as of this update. The optimizer has done
  // so already unless it rounds by chance.
  void refresh_narrow_master(uint32_t update);

 private:
  void add_segment(const std::vector<Parameter*>& parameters, bool trainable);
  void add_in_file(ParameterSegment& segment, DType master_dtype);
  void gather_segment(const ParameterSegment& segment);
  bool always_unsharded() const;
  bool is_offloaded() const { return policy_.offload != Offload::kNone; }
  bool fetched_by_gather() const;
  enum class Fetched : uint8_t { kTrainable, kEverything };
  void fetch(Fetched what, const EventPtr& free);
  void fetch_from_file(const ParameterSegment& segment, const EventPtr& free);
  void narrow_on_its_backend(const ParameterSegment& segment, uint32_t update);
  void narrow(Stream& stream, const ParameterSegment& segment, Tensor out, uint32_t update);
  Tensor flat(const ParameterSegment& segment) const;
  Tensor slot(const ParameterSegment& segment) const;        // this rank's, of a gather
  Tensor inner_slot(const ParameterSegment& segment) const;  // the same inside the inner group

  FsdpRuntime& runtime_;
  std::string name_;
  const UnitPolicy& policy_;
  bool resident_;
  Communicator* inner_;  // null: there is no inner group
  std::vector<ParameterSegment> segments_;
  size_t arena_bytes_ = 0;
  std::vector<std::shared_ptr<CommBuffer>> resident_memory_;

  ParameterState state_ = ParameterState::kSharded;
  BufferPool* pool_ = nullptr;
  int preferred_ = 0;
  int buffer_ = BufferPool::kNone;
  EventPtr gathered_;
  EventPtr inner_copied_;  // RESHARDED: since when inner_shard has its values
  EventPtr updated_;       // since when the host has the values of the last update
  EventPtr fetched_;       // since when the device has them
};

}  // namespace fsdp::comm
