// Contract: comm/fsdp/home/device_home.h.
#include "comm/fsdp/home/device_home.h"

namespace fsdp::comm {

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

}  // namespace fsdp::comm
