// The state that this rank writes into a checkpoint, as of one moment: the session's own tensors,
// for a write that the run waits for, or a copy of them in host memory, which a thread writes while
// training goes on. Next: owned_state.h (which part), write_checkpoint.h.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "optim/loss_scaler.h"
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

}  // namespace fsdp::tools
