// A shard that is kept on the host. One that is kept in a file does the same by other means
// (file_home.h).
//
// [Note: offload] Masters and the optimizer's state lie on another backend, the host; its compute
// stream runs the optimizer. A unit's gradient is sent there as soon as it is reduced, on a stream
// of its own. After the last one, and the flags that say what was present, the host goes on: norm,
// then one unit after the other is updated, in the order in which forward wants them. An event says
// that a unit is updated; its values in the compute dtype are copied back after it, on another
// stream, and its gather waits for this copy, not for the other units. The decisions of a step (the
// clip coefficient, the loss scale, skip) are the device's, where collectives are.
//
// Unless everything is offloaded, the device has what is frozen, gradients while micro-steps add
// up, and a shard of the values in the compute dtype, which is copied once in a step. With
// everything it has none of these: values are copied into the slot for each gather, and a
// gradient's shard is lent while it is reduced. So it is where units are updated in backward, one
// by one: then the host has memory for two gradients, too. Copies are made by the device: a GPU
// reaches the host's memory. A master in another dtype than the unit's is narrowed where it lies.
#pragma once

#include <algorithm>
#include <array>

#include "comm/fsdp/home/shard_home.h"

namespace fsdp::comm {

class HostHomes;

// Lent in turn, where the host has a gradient only until its unit is updated.
struct HostMemory {
  Tensor memory;
  EventPtr free;  // may be null
};

// Values:    home --from_host--> kept values --gather--> slot, after each update or, where the
//            device keeps none: home --from_host--> slot, for each fetch
// Gradient:  shard --to_host--> home, after a reduction; home --from_host--> shard, before one that
//            adds to it
class HostHome : public ShardHome {
 public:
  HostHome(HostHomes& homes, ShardSpec spec);
  // `keeps_values`: the device does, in the compute dtype, also where the slot is not resident.
  void allocate(bool keeps_values);

  EventPtr fetch(const EventPtr& free) override;
  void written() override;
  void keep_gradient(const Tensor& shard, bool has_memory) override;
  void allocate_gradient() override;
  void lend_gradient(bool adds) override;
  void store_gradient(const EventPtr& reduced, bool last) override;
  void store_late(const EventPtr& reduced) override;
  void zero_gradient() override;
  void hand_over(const EventPtr& reduced, const Flags& flags) override;
  void clear_gradient() override;
  void forget_events() override;
  void end(Use use) override;

 protected:
  const Tensor& values() const { return stored_.copy.defined() ? stored_.copy : stored_.master; }
  void take_gradient(const Tensor& shard, bool has_memory);
  // These return since when the copy is done. `free`: since when it may be written; may be null.
  virtual EventPtr load_values(const Tensor& to, const EventPtr& free);
  virtual EventPtr load_gradient(const EventPtr& free);
  virtual EventPtr send_gradient(const EventPtr& reduced);

  HostHomes& host_homes_;
  Tensor kept_;  // the values that the device keeps; undefined: none
  // Since when home has what was written last, and the kept values are up to date. Null: since
  // long; and: they are not.
  EventPtr written_, kept_since_;
  Tensor shard_;  // of the gradient, on the device; a lent one has memory while it is reduced
  bool is_lent_ = false;
  void end_update();

 private:
  void take_written(const EventPtr& free);
  void give_host_memory_back();

  int lender_ = 0;                     // its number among the lenders of all units
  int lent_ = BufferPool::kNone;       // meanwhile
  EventPtr worked_;                    // since when the host's last update is over; may be null
  HostMemory* host_memory_ = nullptr;  // of the gradient, where it is lent: from being sent on
};

// What stays on the device beside a home on the host.
struct DeviceKeeps {
  bool values = false;     // of parameters, in the compute dtype; and all of what is frozen
  bool gradients = false;  // between the reductions of a step
};

// Streams of the homes of a rank:
//   to_host, from_host  copies of gradients and flags; of values, and of gradients that are added
//   to.
//                       A link carries both directions at once; and neither a gather nor a
//                       reduction waits for the copy of the next unit
class HostHomes : public ShardHomes {
 public:
  HostHomes(const HomeRank& rank, Backend& host, DeviceKeeps keeps);

  std::shared_ptr<ShardHome> keep(ShardSpec spec) override;
  Tensor keep_flags(const Tensor& flags) override;
  void allocate() override;
  void hand_over() override;
  void handed_over() override;
  void give_back() override;
  void drop_gradients() override;
  void before_masters_are_written() override;
  std::vector<Stream*> streams() const override;
  void forget_events() override;

  Backend& host() const { return host_; }
  Stream& to_host() const { return *to_host_; }
  Stream& from_host() const { return *from_host_; }
  bool lends() const { return !keeps_.gradients || rank().gives_gradients_back; }
  // For a gradient of so many bytes, or less than another one. Before allocate().
  void expect_gradient(size_t bytes) { gradient_bytes_ = std::max(gradient_bytes_, bytes); }
  HostMemory& take_memory();
  const Tensor& flags() const { return flags_; }
  const Tensor& host_flags() const { return host_flags_; }
  int add_lender(size_t bytes);  // before allocate()
  BufferPool& lent_shards() const { return *lent_shards_; }

 protected:
  virtual void wait_for_gradients();  // the optimizer does

 private:
  Backend& host_;
  DeviceKeeps keeps_;
  std::unique_ptr<Stream> to_host_, from_host_;
  Tensor flags_, host_flags_;
  size_t lenders_ = 0, lent_bytes_ = 0;
  std::unique_ptr<BufferPool> lent_shards_;  // of all units
  size_t gradient_bytes_ = 0;
  std::array<HostMemory, 2> host_memory_;  // one is read by the host, one is written
  size_t next_memory_ = 0;
};

}  // namespace fsdp::comm
