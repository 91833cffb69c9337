// A session in the places that the program was started with: the CPU or a GPU of this rank, its
// host's memory, a file. Not here: what a session does (tools/engine/session.h), which backend a
// rank takes (tools/launch/backend_choice.h).
#pragma once

#include "tools/engine/session.h"
#include "tools/launch/backend_choice.h"

namespace fsdp::tools {

struct PlacedOptions : SessionOptions {
  BackendOptions backend = {};
};

Places make_places(comm::Communicator& world, const PlacedOptions& options);  // collective

// Collective over `world`, whose lifetime must exceed the session's.
Session place_session(comm::Communicator& world, const PlacedOptions& options);

}  // namespace fsdp::tools
