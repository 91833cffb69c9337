// Contract and schedule: core/host_inputs.h.
#include "core/host_inputs.h"

#include <algorithm>

namespace fsdp {

HostInputs::HostInputs(Backend& device, Backend& host)
    : device_(device),
      host_(host),
      out_(device.create_stream("inputs_out")),
      in_(device.create_stream("inputs_in")),
      inputs_(host.create_stream("inputs")) {}

HostInputs::~HostInputs() { recover(); }

std::shared_ptr<HostInputs::Sent> HostInputs::send(const Tensor& input) {
  if (!sent_.empty()) sent_.back()->leave_device();
  return std::make_shared<Sent>(*this, input);
}

void HostInputs::recover() {
  for (Stream* stream : {out_.get(), in_.get(), inputs_.get()}) {
    try {
      stream->backend().synchronize(*stream);
    } catch (const Error&) {
    }
  }
}

HostInputs::Sent::Sent(HostInputs& all, const Tensor& input)
    : all_(all), shape_(input.shape()), dtype_(input.dtype()), device_(input.detached()) {
  const auto memory = std::make_shared<Storage>(all_.host_, input.bytes(),
                                                MemoryCategory::kActivation, all_.inputs_.get());
  host_ = Tensor(memory, 0, shape_, dtype_);
  Backend& device = all_.device_;
  device.wait(*all_.out_, device.record(device.compute_stream()));
  device.wait(*all_.out_, all_.host_.record(*all_.inputs_));
  device.copy(*all_.out_, host_.data(), device_.data(), device_.bytes());
  copied_ = device.record(*all_.out_);
  all_.sent_.push_back(this);
}

// An error of a stream is told to whoever waits for its results.
HostInputs::Sent::~Sent() {
  std::erase(all_.sent_, this);
  try {
    leave_device();
    leave_host();
  } catch (const Error&) {
  }
}

void HostInputs::Sent::leave_device() {
  if (!device_.defined()) return;
  all_.device_.wait(all_.device_.compute_stream(), copied_);
  device_ = Tensor();
}

void HostInputs::Sent::leave_host() {
  if (!host_.defined()) return;
  all_.host_.wait(*all_.inputs_, copied_);
  host_ = Tensor();
}

void HostInputs::Sent::fetch() {
  if (device_.defined()) return;
  Backend& device = all_.device_;
  device_ = Tensor::empty(device, shape_, dtype_);
  device.wait(*all_.in_, device.record(device.compute_stream()));
  device.copy(*all_.in_, device_.data(), host_.data(), device_.bytes());
  copied_ = device.record(*all_.in_);
}

Tensor HostInputs::Sent::take() {
  FSDP_CHECK(host_.defined(), "[host_inputs] take: expected one call, got a second");
  fetch();
  const auto mine = std::find(all_.sent_.begin(), all_.sent_.end(), this);
  if (mine != all_.sent_.begin()) (*std::prev(mine))->fetch();
  all_.sent_.erase(mine);
  Tensor input = device_;
  leave_device();
  leave_host();
  return input;
}

}  // namespace fsdp
