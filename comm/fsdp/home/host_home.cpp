// Contract: comm/fsdp/home/host_home.h.
#include "comm/fsdp/home/host_home.h"

#include <algorithm>

#include "core/copy_in_order.h"
#include "core/scope.h"

namespace fsdp::comm {
namespace {

constexpr size_t kLentShards = 2;  // one is reduced into, one is being sent

}  // namespace

// ---------------------------------------------------------------------------- Values

HostHome::HostHome(HostHomes& homes, ShardSpec spec)
    : ShardHome(homes, std::move(spec)), host_homes_(homes) {
  if (spec_.resident) kept_ = spec_.slot;
}

void HostHome::allocate(bool keeps_values) {
  Backend& host = host_homes_.host();
  stored_.master = zeros_on(host, spec_.master_dtype);
  if (spec_.master_dtype != spec_.dtype) stored_.copy = zeros_on(host, spec_.dtype);
  if (keeps_values && !kept_.defined()) kept_ = zeros_on(homes_.rank().device, spec_.dtype);
  at_work_ = stored_;
}

// Nobody reads old values that are kept: an update comes after the reduction of the unit, which
// comes after its gathers.
EventPtr HostHome::fetch(const EventPtr& free) {
  if (!kept_.defined()) return load_values(spec_.slot, free);
  Backend& device = homes_.rank().device;
  Stream& gather = homes_.rank().gather;
  device.wait(gather, free);
  if (!kept_since_) kept_since_ = load_values(kept_, nullptr);
  device.wait(gather, kept_since_);
  if (kept_.storage() != spec_.slot.storage()) {
    device.copy(gather, spec_.slot.data(), kept_.data(), kept_.bytes());
  }
  return nullptr;
}

EventPtr HostHome::load_values(const Tensor& to, const EventPtr& free) {
  Backend& device = homes_.rank().device;
  Stream& stream = host_homes_.from_host();
  device.wait(stream, free);
  device.wait(stream, written_);
  device.copy(stream, to.data(), values().data(), to.bytes());
  return device.record(stream);
}

void HostHome::take_written(const EventPtr& free) {
  Backend& host = host_homes_.host();
  const Scope scope(homes_.rank().device, spec_.unit);
  written_ = host.record(host.compute_stream());
  if (kept_.defined()) kept_since_ = load_values(kept_, free);
}

void HostHome::end(Use use) {
  ShardHome::end(use);
  if (use != Use::kUpdate) return;
  end_update();
  take_written(nullptr);
}

void HostHome::end_update() {
  Backend& host = host_homes_.host();
  worked_ = host.record(host.compute_stream());
  give_host_memory_back();
}

// Units that are still gathered have been waited for by the device's compute stream.
void HostHome::written() {
  Backend& device = homes_.rank().device;
  make_copy(homes_.updates());
  take_written(device.record(device.compute_stream()));
}

void HostHome::forget_events() {
  ShardHome::forget_events();
  written_ = kept_since_ = worked_ = nullptr;
}

// ---------------------------------------------------------------------------- Gradient

void HostHome::take_gradient(const Tensor& shard, bool has_memory) {
  shard_ = shard;
  is_lent_ = host_homes_.lends() && !has_memory;
  if (is_lent_) lender_ = host_homes_.add_lender(shard.bytes());
}

void HostHome::keep_gradient(const Tensor& shard, bool has_memory) {
  take_gradient(shard, has_memory);
  Backend& host = host_homes_.host();
  const auto memory = Storage::unbound(host, shard.bytes(), MemoryCategory::kGradient);
  memory->set_label("gradient of unit " + spec_.unit + " on the host");
  stored_.gradient = at_work_.gradient = Tensor(memory, 0, shard.shape(), shard.dtype());
  homes_.rank().gives_gradients_back ? host_homes_.expect_gradient(shard.bytes())
                                     : memory->refill();
}

void HostHome::allocate_gradient() {
  if (!is_lent_) shard_.storage()->refill();
}

void HostHome::lend_gradient(bool adds) {
  Backend& device = homes_.rank().device;
  Stream& reduce = homes_.rank().reduce;
  if (!is_lent_) return device.wait(reduce, sent_);
  BufferPool& pool = host_homes_.lent_shards();
  lent_ = pool.acquire(lender_ % pool.size());
  shard_.storage()->bind(pool.data(lent_));
  const EventPtr& free = pool.free_since(lent_);
  device.wait(reduce, adds ? load_gradient(free) : free);
}

void HostHome::store_gradient(const EventPtr& reduced, bool last) {
  sent_ = last || is_lent_ ? send_gradient(reduced) : nullptr;
  if (!is_lent_) return;
  shard_.storage()->unbind();
  host_homes_.lent_shards().release(lent_, sent_);
}

void HostHome::store_late(const EventPtr& reduced) {
  if (!sent_) sent_ = send_gradient(reduced);
}

EventPtr HostHome::load_gradient(const EventPtr& free) {
  Backend& device = homes_.rank().device;
  Stream& stream = host_homes_.from_host();
  device.wait(stream, free);
  device.wait(stream, sent_);
  device.copy(stream, shard_.data(), stored_.gradient.data(), shard_.bytes());
  return device.record(stream);
}

EventPtr HostHome::send_gradient(const EventPtr& reduced) {
  Backend& device = homes_.rank().device;
  Stream& stream = host_homes_.to_host();
  device.wait(stream, reduced);
  if (homes_.rank().gives_gradients_back) {
    host_memory_ = &host_homes_.take_memory();
    stored_.gradient.storage()->bind(host_memory_->memory.data());
    device.wait(stream, host_memory_->free);
  }
  device.copy(stream, stored_.gradient.data(), shard_.data(), shard_.bytes());
  return device.record(stream);
}

// The host's compute stream is behind all that was done with it.
void HostHome::give_host_memory_back() {
  if (!host_memory_) return;
  Backend& host = host_homes_.host();
  host_memory_->free = host.record(host.compute_stream());
  host_memory_ = nullptr;
  stored_.gradient.storage()->unbind();
}

void HostHome::clear_gradient() {
  ShardHome::clear_gradient();
  give_host_memory_back();
}

// The gradient was sent on the stream that takes the flags.
void HostHome::hand_over(const EventPtr&, const Flags& flags) {
  Backend& device = homes_.rank().device;
  Backend& host = host_homes_.host();
  Stream& stream = host_homes_.to_host();
  const Shape count = {flags.count};
  const Tensor from = host_homes_.flags().slice(flags.first, count);
  device.wait(stream, flags.shared);
  device.wait(stream, worked_);
  device.copy(stream, host_homes_.host_flags().slice(flags.first, count).data(), from.data(),
              from.bytes());
  host.wait(host.compute_stream(), device.record(stream));
}

void HostHome::zero_gradient() {
  Backend& host = host_homes_.host();
  host.fill_zero(host.compute_stream(), stored_.gradient.data(), stored_.gradient.bytes());
}

// ---------------------------------------------------------------------------- Of a rank

HostHomes::HostHomes(const HomeRank& rank, Backend& host, DeviceKeeps keeps)
    : ShardHomes(rank),
      host_(host),
      keeps_(keeps),
      to_host_(rank.device.create_stream("to_host")),
      from_host_(rank.device.create_stream("from_host")) {}

std::shared_ptr<ShardHome> HostHomes::keep(ShardSpec spec) {
  if (keeps_.values && !spec.trainable) return ShardHomes::keep(std::move(spec));
  auto home = std::make_shared<HostHome>(*this, std::move(spec));
  home->allocate(keeps_.values);
  return home;
}

Tensor HostHomes::keep_flags(const Tensor& flags) {
  flags_ = flags;
  host_flags_ = Tensor::zeros(host_, flags.shape(), flags.dtype(), MemoryCategory::kOptimizerState);
  return host_flags_;
}

int HostHomes::add_lender(size_t bytes) {
  lent_bytes_ = std::max(lent_bytes_, bytes);
  return static_cast<int>(lenders_++);
}

// Of all depths together: a shard is lent from its reduction to its copy, both of which are
// enqueued at once.
void HostHomes::allocate() {
  if (gradient_bytes_ > 0) {
    for (HostMemory& each : host_memory_) {
      const Shape bytes = {static_cast<int64_t>(gradient_bytes_ / size_of(DType::kF32))};
      each.memory = Tensor::empty(host_, bytes, DType::kF32, MemoryCategory::kGradient);
    }
  }
  if (lenders_ == 0) return;
  lent_shards_ =
      std::make_unique<BufferPool>(rank().reduces, rank().device, std::min(lenders_, kLentShards),
                                   lent_bytes_, MemoryCategory::kGradient, rank().lent);
}

// The compute stream has waited for the gradients, too: their memory can be used again. The host's
// last update has read the flags by then.
void HostHomes::hand_over() {
  wait_for_gradients();
  copy_in_order(rank().device, flags_, host_flags_);
}

HostMemory& HostHomes::take_memory() {
  next_memory_ = 1 - next_memory_;
  return host_memory_[next_memory_];
}

void HostHomes::handed_over() {
  rank().device.wait(rank().device.compute_stream(), rank().device.record(*to_host_));
}

void HostHomes::wait_for_gradients() {
  host_.wait(host_.compute_stream(), rank().device.record(*to_host_));
}

void HostHomes::give_back() {
  if (lent_shards_) lent_shards_->give_back();
}

void HostHomes::drop_gradients() {
  Backend& device = rank().device;
  const EventPtr sent = device.record(*to_host_);
  device.wait(device.compute_stream(), sent);
  host_.wait(host_.compute_stream(), sent);
}

void HostHomes::before_masters_are_written() {
  host_.wait(host_.compute_stream(), rank().device.record(*from_host_));
}

std::vector<Stream*> HostHomes::streams() const {
  return {to_host_.get(), from_host_.get(), &host_.compute_stream()};
}

void HostHomes::forget_events() {
  ShardHomes::forget_events();
  if (lent_shards_) lent_shards_->forget_events();
  for (HostMemory& each : host_memory_) each.free = nullptr;
}

}  // namespace fsdp::comm
