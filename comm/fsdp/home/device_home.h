// A shard that is kept on the device that computes. Its values are fetched by the gather stream,
// which casts them into the slot; its gradient is where reductions leave it.
//
// [Note: who holds resident values] Where the dtype of a resident buffer is the master's, the
// master is a slice of it: nothing is held twice. Where it is another one, and the shard is all of
// the buffer, the optimizer keeps the buffer equal to the master, and there is nothing to fetch.
#pragma once

#include "comm/fsdp/home/shard_home.h"

namespace fsdp::comm {

class DeviceHome : public ShardHome {
 public:
  DeviceHome(ShardHomes& homes, ShardSpec spec);

  EventPtr fetch(const EventPtr& free) override;
  bool optimizer_writes_slot() const override { return spec_.resident && spec_.whole; }
  void written() override { make_copy(homes_.updates()); }

  void keep_gradient(const Tensor& shard, bool has_memory) override;
  void allocate_gradient() override { stored_.gradient.storage()->refill(); }
  void lend_gradient(bool) override {}
  void store_gradient(const EventPtr&, bool) override {}
  void store_late(const EventPtr&) override {}
  void zero_gradient() override;
  void hand_over(const EventPtr& reduced, const Flags& flags) override;
};

}  // namespace fsdp::comm
