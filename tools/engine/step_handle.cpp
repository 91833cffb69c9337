// Reads that do not wait, and the one that does.
#include "tools/engine/step_handle.h"

namespace fsdp {

// The stream keeps the landing alive until it has written there, also when all handles are gone.
void StepHandle::read_later(void* place, const Tensor& scalar, size_t bytes) {
  FSDP_CHECK(scalar.bytes() == bytes, "[step_handle] scalar: expected {} bytes, got {}", bytes,
             scalar.bytes());
  Backend& backend = scalar.backend();
  done_.push_back(backend.read_later(
      backend.compute_stream(), place, scalar.data(), bytes,
      [landing = landing_] { landing->written = std::chrono::steady_clock::now(); }));
}

StepValues StepHandle::read() const {
  FSDP_CHECK(!done_.empty(), "[step_handle] read: expected the results of a step, got none");
  for (const EventPtr& event : done_) event->wait();
  return {.loss = landing_->loss,
          .grad_norm = landing_->norm,
          .loss_scale = landing_->loss_scale,
          .skipped = static_cast<StepSkip>(landing_->skipped),
          .scale_at_minimum = landing_->scale_at_minimum != 0,
          .ended = landing_->written.load()};
}

}  // namespace fsdp
