// Writes the state of a session as a checkpoint: a safetensors file of each rank, then the
// manifest. The folder appears under its name when it is complete and on the disk. What is written
// is the state of one moment: the session's own tensors, for a write that the run waits for, or a
// copy of them in host memory, which a thread writes while training continues. Next: manifest.h,
// owned_state.h. Not here: when, and which ones are kept (run_checkpoints.h).
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "core/io/patience.h"
#include "optim/loss_scaler.h"
#include "tools/checkpoint/manifest.h"
#include "tools/checkpoint/owned_state.h"

namespace fsdp::tools {

struct StateToWrite {
  std::vector<StatePartOwned> parts;
  // Where the values of each part are on the host; empty: only in the tensors.
  std::vector<const std::byte*> staged;
  uint32_t updates = 0;
  std::optional<optim::LossScalerState> loss_scale;
};

// Without a copy: valid until the session changes.
StateToWrite state_to_write(Session& session);
// The values of a part in order, a stretch at a time.
void read_part(const StateToWrite& state, size_t part,
               const std::function<void(const std::byte* data, size_t bytes)>& use);

// Memory for one copy, which stays: the system need not find the pages at every checkpoint. It is
// workspace of Session::host_memory().
class StagingMemory {
 public:
  explicit StagingMemory(Session& session);  // which outlives this
  size_t bytes() const { return bytes_; }
  // Waits for the compute stream, and copies. The copy before must not be in use any more.
  StateToWrite copy();

 private:
  Session& session_;
  size_t bytes_ = 0;
  Tensor memory_;
};

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
