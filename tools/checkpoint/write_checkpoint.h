// Writes the state of a session as a checkpoint: a safetensors file of each rank, then the
// manifest. The folder appears under its name when it is complete and on the disk. Next:
// manifest.h, owned_state.h. Not here: when, and which ones are kept (run_checkpoints.h).
#pragma once

#include <filesystem>

#include "core/io/patience.h"
#include "tools/checkpoint/manifest.h"
#include "tools/checkpoint/staged_state.h"

namespace fsdp::tools {

// `facts`: the manifest without what the session knows: tensors, files, hashes, updates, loss
// scale. Returns all of it, on every rank. A folder of this name is replaced when the new one is on
// the disk. AgreedError when that fails on any rank, and then nothing is left of the new folder.
// Collective.
Manifest write_checkpoint(Session& session, const std::filesystem::path& folder,
                          const Manifest& facts);
// The same of a state that was read before, by ranks that need not be those of a session's thread:
// `world` is used for nothing else meanwhile.
Manifest write_checkpoint(comm::Communicator& world, const StateToWrite& state,
                          const std::filesystem::path& folder, const Manifest& facts,
                          const IoPatience& patience = {});

}  // namespace fsdp::tools
