// Where a rank computes and where it keeps what it has: backends that the caller makes, and how the
// ranks' devices talk. Not here: the backends (kernels), the transports (comm), who chooses them
// for the program fsdp (tools/train/placed_session.h).
#pragma once

#include <functional>
#include <memory>

#include "comm/communicator.h"
#include "core/backend.h"

namespace fsdp {

struct Places {
  std::unique_ptr<Backend> device;  // computes
  // Called when something is to lie there, once and only then; the device outlives what is made.
  // Null: nothing can lie there.
  using Make = std::function<std::unique_ptr<Backend>(Backend& device)>;
  Make host = nullptr;  // the host's memory beside the device, and what computes there
  Make file = nullptr;  // a file in the place of the host's memory: offload: nvme
  // Of the same ranks as the world, between their devices; null: devices talk over the world.
  std::unique_ptr<comm::Communicator> devices = nullptr;
};

}  // namespace fsdp
