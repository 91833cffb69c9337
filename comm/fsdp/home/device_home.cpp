// A shard that is kept on the device that computes. Its values are fetched by the gather stream,
// which casts them into the slot; its gradient is where reductions leave it.
//
// [Note: who holds resident values] Where the dtype of a resident buffer is the master's, the
// master is a slice of it: nothing is held twice. Where it is another one, and the shard is all of
// the buffer, the optimizer keeps the buffer equal to the master, and there is nothing to fetch.
#include "comm/fsdp/home/shard_home.h"

namespace fsdp::comm {
namespace {

class DeviceHome final : public ShardHome {
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

DeviceHome::DeviceHome(ShardHomes& homes, ShardSpec spec) : ShardHome(homes, std::move(spec)) {
  const bool in_slot = spec_.resident && spec_.master_dtype == spec_.dtype;
  stored_.master = in_slot ? spec_.slot : zeros_on(homes_.rank().device, spec_.master_dtype);
  if (optimizer_writes_slot() && !in_slot) stored_.copy = spec_.slot;
  at_work_ = stored_;
}

EventPtr DeviceHome::fetch(const EventPtr& free) {
  Backend& device = homes_.rank().device;
  Stream& gather = homes_.rank().gather;
  device.wait(gather, free);
  device.wait(gather, homes_.device_updated());
  if (spec_.slot.data() != stored_.master.data()) narrow(gather, spec_.slot, homes_.updates());
  return nullptr;
}

void DeviceHome::keep_gradient(const Tensor& shard, bool) {
  stored_.gradient = at_work_.gradient = shard;
}

void DeviceHome::zero_gradient() {
  Backend& device = homes_.rank().device;
  const Tensor& gradient = stored_.gradient;
  device.fill_zero(device.compute_stream(), gradient.data(), gradient.bytes());
}

void DeviceHome::hand_over(const EventPtr& reduced, const Flags& flags) {
  Backend& device = homes_.rank().device;
  device.wait(device.compute_stream(), reduced);
  device.wait(device.compute_stream(), flags.shared);
}

}  // namespace

std::shared_ptr<ShardHome> ShardHomes::keep(ShardSpec spec) {
  return std::make_shared<DeviceHome>(*this, std::move(spec));
}

}  // namespace fsdp::comm
