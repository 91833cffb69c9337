// From the backends that were chosen to the places of a session.
#include "tools/train/placed_session.h"

namespace fsdp::tools {

Places make_places(comm::Communicator& world, const PlacedOptions& options) {
  BackendOptions backend = options.backend;
  // What release_arena gives back in every step is memory of the backend, in the order of its
  // streams. Registered memory has none: to free it the host would wait for the GPU, and to
  // register it again for all ranks.
  if (backend.nccl && options.fsdp.release_arena) backend.nccl->register_buffers = false;
  Places places;
  places.device = make_backend(backend, options.fsdp.param_dtype);
  places.host = [backend](Backend& device) { return make_host_backend(backend, device); };
  places.file = [backend, owner = fmt::format("rank {}", world.rank())](Backend& device) {
    return make_file_backend(backend, device, owner);
  };
  places.devices = make_gpu_world(world, backend, *places.device);
  check_products(backend, computed_dtypes(options.fsdp));
  return places;
}

Session place_session(comm::Communicator& world, const PlacedOptions& options) {
  return Session(world, make_places(world, options), options);
}

}  // namespace fsdp::tools
