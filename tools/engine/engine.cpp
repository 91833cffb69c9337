// A rank's parts, put together and taken apart.
#include "tools/engine/engine.h"

#include <string_view>

#include "tools/engine/sharded_values.h"

namespace fsdp {
namespace {

// An engine that does not train has no optimizer; its parameters can lie on the host.
bool offloads(const EngineOptions& options) {
  return comm::offloads_all(options.fsdp.offload) ||
         (options.fsdp.offload == comm::Offload::kOptimizer && options.step.training);
}

std::unique_ptr<Backend> made(bool needed, const Places::Make& make, Backend& device,
                              std::string_view place) {
  if (!needed) return nullptr;
  FSDP_CHECK(make, "[engine] places.{}: expected what makes it, for what is offloaded", place);
  return make(device);
}

}  // namespace

Engine::Engine(comm::Communicator& world, Places&& places, std::unique_ptr<Module> module,
               const EngineOptions& options)
    : world_(world),
      make_host_(std::move(places.host)),
      device_(std::move(places.device)),
      devices_(std::move(places.devices)),
      module_(std::move(module)),
      host_(made(offloads(options) || options.inputs_on_host, make_host_, *device_, "host")),
      file_(made(options.fsdp.offload == comm::Offload::kNvme, places.file, *device_, "file")),
      host_inputs_(options.inputs_on_host ? std::make_unique<HostInputs>(*device_, *host_)
                                          : nullptr),
      tape_(*device_) {
  FSDP_CHECK(options.wrap, "[engine] wrap: expected a policy (comm/fsdp/plan.h), got none");
  tape_.set_host_inputs(host_inputs_.get());
  module_->set_tape(&tape_);
  comm::FsdpOptions fsdp = options.fsdp;
  fsdp.training = options.step.training;
  if (!fsdp.training) fsdp.update_in_backward = false;
  if (options.step.loss_scale.initial > 0) fsdp.detect_overflow = true;
  if (!offloads(options)) fsdp.offload = comm::Offload::kNone;
  fsdp.host = offloads(options) ? host_.get() : nullptr;
  fsdp.file = file_.get();
  comm::Communicator& between = devices_ ? *devices_ : world;
  sharded_ = std::make_unique<comm::FullySharded>(*module_, options.wrap, fsdp, *device_, between);
  steps_ = std::make_unique<TrainStep>(*sharded_, tape_, between, options.step);
}

Engine::~Engine() = default;

void Engine::initialise(const models::FillFunction& fill) { fsdp::initialise(*sharded_, fill); }

void Engine::initialise_from_first_rank(const models::FillFunction& fill) {
  fsdp::initialise_from_first_rank(*sharded_, fill);
}

Backend& Engine::host_memory() {
  if (device_->host_reaches_memory()) return *device_;
  if (!host_) host_ = made(true, make_host_, *device_, "host");
  return *host_;
}

size_t Engine::peak_memory() const {
  const bool one_memory = host_ && device_->host_reaches_memory();
  return device_->ledger().usage().total_peak +
         (one_memory ? host_->ledger().usage().total_peak : 0);
}

void Engine::set_phases(TracePhases* phases) {
  phases_ = phases;
  steps_->set_phases(phases);
  if (phases) phases->set_marks(dynamic_cast<PhaseMarks*>(device_.get()));
}

void Engine::set_trace(Trace* trace) {
  for (Backend* backend : {device_.get(), host_.get(), file_.get()}) {
    if (!backend) continue;
    backend->synchronize(backend->compute_stream());
    backend->set_trace(trace);
  }
}

}  // namespace fsdp
