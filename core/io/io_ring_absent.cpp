// Stub for builds without liburing. Contract: core/io/io_ring.h.
#include "core/io/io_ring.h"

namespace fsdp {

std::unique_ptr<IoRing> IoRing::make(std::string& problem) {
  problem = "built without liburing";
  return nullptr;
}

}  // namespace fsdp
