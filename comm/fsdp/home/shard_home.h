// Where a rank's shards are between their uses. A shard of a flat buffer has a home: the device
// that computes (device_home.cpp), the host (host_home.h), or a file (file_home.h). It keeps the
// values, the reduced gradient and, with the optimizer, its state.
//
//   fetch           the values come into this rank's slot, for a gather
//   store_gradient  what a reduction has left on the device goes home
//   begin, end      the optimizer works on all of it (ShardAccess in core/flat_layout.h)
//
// Everything is enqueued; nobody waits. Who uses a home does not know which kind it is.
//
// [Note: rounding by chance] With rounding_seed a master becomes bf16 by stochastic rounding: what
// the model computes with is the master on average, however small the updates are. The random
// numbers depend on the number of the update, not on the gather: every gather of a step, on every
// replica and under every strategy, rounds a parameter alike. Rounding is done only here, not in
// the optimizer too; the price is one pass of 6 bytes per parameter for copies that are kept.
//
// Not here: when to fetch and to store (unit_parameters.h, unit_gradients.h of comm/fsdp).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/buffer_pool.h"
#include "core/flat_layout.h"

namespace fsdp::comm {

// The shard that a home is asked to keep.
struct ShardSpec {
  std::string unit;  // for traces
  int64_t numel = 0;
  bool trainable = true;
  DType dtype = DType::kF32;         // in which the unit computes
  DType master_dtype = DType::kF32;  // of what the optimizer updates; frozen: dtype
  // (numel), dtype: this rank's part of the unit's flat buffer. It has memory while the unit is
  // unsharded, or for ever: resident.
  Tensor slot;
  bool resident = false;
  bool whole = false;                                    // it is all of the flat buffer
  std::optional<uint64_t> rounding_seed = std::nullopt;  // masters are rounded by chance
  std::vector<ParameterRun> runs = {};                   // of the shard; else empty
};

class ShardHomes;

class ShardHome : public ShardAccess {
 public:
  // 1D, of the shard's elements.
  struct Tensors {
    Tensor master;
    Tensor copy;      // the master in the compute dtype, where no fetch casts; often undefined
    Tensor gradient;  // reduced; undefined: frozen
  };
  const Tensors& stored() const { return stored_; }  // where they are always
  // Where the optimizer finds them between begin() and end(). It writes the copy, too, if defined.
  Tensors for_optimizer() const;

  // ---- Values ----
  // Enqueues what brings the values into the slot. `free`: since when the slot may be written; may
  // be null. Returns the event that the gather stream must wait for; null where the gather stream
  // itself was given the work.
  virtual EventPtr fetch(const EventPtr& free) = 0;
  // The optimizer writes into the slot: a fetch would change nothing.
  virtual bool optimizer_writes_slot() const { return false; }
  // Somebody else than the optimizer wrote the master, on the compute stream of its backend.
  virtual void written() = 0;

  // ---- The gradient of a trainable shard ----
  // `shard`: (n), on the device: what reductions write. It gets memory by allocate_gradient();
  // `has_memory`: it has some already, of the unit.
  virtual void keep_gradient(const Tensor& shard, bool has_memory) = 0;
  virtual void allocate_gradient() = 0;  // nothing where it is lent for each reduction
  // Before a reduction: from here on the reduce stream may write the shard. With `adds` the shard
  // holds what earlier micro-steps left. After it, store_gradient: the shard has its new values
  // once `reduced` is ready. `last`: the optimizer comes next.
  virtual void lend_gradient(bool adds) = 0;
  virtual void store_gradient(const EventPtr& reduced, bool last) = 0;
  // The last one before the optimizer was not said to be the last.
  virtual void store_late(const EventPtr& reduced) = 0;
  virtual void zero_gradient() = 0;  // for the optimizer, instead of all reductions
  // Of an update in backward: the optimizer may begin with this shard alone once it is reduced and
  // these flags, of those that keep_flags() was given, are the same on all ranks.
  struct Flags {
    int64_t first = 0, count = 0;
    EventPtr shared;
  };
  virtual void hand_over(const EventPtr& reduced, const Flags& flags) = 0;
  // Since when the device's shard has been read by what stores it; may be null.
  const EventPtr& sent() const { return sent_; }
  virtual void clear_gradient() { sent_ = nullptr; }  // the step is over

  virtual void forget_events() { sent_ = nullptr; }  // all streams are idle

  void end(Use use) override;  // keeps the copy equal, where the optimizer does not

 protected:
  ShardHome(ShardHomes& homes, ShardSpec spec) : homes_(homes), spec_(std::move(spec)) {}
  // The master in the compute dtype, as of this update.
  void narrow(Stream& stream, Tensor out, uint32_t update) const;
  void make_copy(uint32_t update) const;  // if there is one
  Tensor zeros_on(Backend& backend, DType dtype) const;

  ShardHomes& homes_;
  ShardSpec spec_;
  Tensors stored_;
  Tensors at_work_;  // where the optimizer finds them
  EventPtr sent_;
};

// What homes use of their rank. All outlive them.
struct HomeRank {
  Backend& device;
  Stream& gather;             // fetches where the device has the values
  Stream& reduce;             // writes shards of gradients
  Communicator& reduces;      // makes the memory of shards that are lent
  BufferPool::Lifetime lent;  // of that memory
  bool gives_gradients_back;  // a shard's gradient is needed until its own update
};

// All homes of a rank, and what they share. As it stands: all of them are the device.
class ShardHomes {
 public:
  explicit ShardHomes(const HomeRank& rank) : rank_(rank) {}
  virtual ~ShardHomes() = default;
  ShardHomes(const ShardHomes&) = delete;
  ShardHomes& operator=(const ShardHomes&) = delete;

  // ---- Set-up ----
  virtual std::shared_ptr<ShardHome> keep(ShardSpec spec);
  // Of the parameters, (n), i32, on the device. Returns where the optimizer finds them.
  virtual Tensor keep_flags(const Tensor& flags) { return flags; }
  virtual void allocate() {}        // all homes are made, and keep their gradients. Collective
  virtual void allocate_pages() {}  // the optimizer is made

  // ---- A step ----
  // The end of backward: the optimizer may begin when it has all gradients, and the flags.
  virtual void hand_over() {}
  // The same, where each shard was handed over by itself: gradients and flags have been sent.
  virtual void handed_over() {}
  void updated();  // by the optimizer, or by somebody else
  // Finished steps.
  uint32_t updates() const { return updates_; }
  void set_updates(uint32_t updates) { updates_ = updates; }
  virtual void give_back() {}  // memory that a step needs no more: release_arena
  // The gradients of a step are dropped: their memory stays until they have been sent.
  virtual void drop_gradients() {}

  // ---- Between steps ----
  // Around what somebody else than the optimizer writes into masters, on the compute streams of
  // their backends.
  virtual void before_masters_are_written() {}
  virtual void masters_written() {}
  virtual std::vector<Stream*> streams() const { return {}; }  // of the homes
  virtual void forget_events() { updated_ = nullptr; }         // all streams are idle

  const HomeRank& rank() const { return rank_; }
  // The optimizer's last write into masters on the device; may be null.
  const EventPtr& device_updated() const { return updated_; }

 private:
  HomeRank rank_;
  uint32_t updates_ = 0;
  EventPtr updated_;
};

}  // namespace fsdp::comm
