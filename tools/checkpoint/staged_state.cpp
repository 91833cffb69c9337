// Contract: tools/checkpoint/staged_state.h.
#include "tools/checkpoint/staged_state.h"

#include <algorithm>
#include <cstring>

#include "comm/fsdp/fully_sharded.h"

namespace fsdp::tools {
namespace {

constexpr size_t kStretchBytes = size_t{4} << 20;
constexpr size_t kAlignment = 64;  // a cache line; of any dtype

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

StateToWrite state_to_write(Session& session) {
  StateToWrite state = {.parts = owned_state(session),
                        .staged = {},
                        .updates = session.sharded().updates(),
                        .loss_scale = {}};
  if (const optim::LossScaler* scaler = session.loss_scaler()) state.loss_scale = scaler->state();
  return state;
}

void read_part(const StateToWrite& state, size_t part,
               const std::function<void(const std::byte* data, size_t bytes)>& use) {
  const Tensor& values = state.parts[part].values;
  if (state.staged.empty()) return read_in_stretches(values, use);
  for (size_t done = 0; done < values.bytes(); done += kStretchBytes) {
    use(state.staged[part] + done, std::min(kStretchBytes, values.bytes() - done));
  }
}

StagingMemory::StagingMemory(Session& session) : session_(session) {
  for (const StatePartOwned& part : owned_state(session)) bytes_ += aligned(part.values.bytes());
  // Zeros: its pages are there before the first checkpoint needs them.
  memory_ =
      Tensor::zeros(session.host_memory(), Shape{static_cast<int64_t>(bytes_ / sizeof(int32_t))},
                    DType::kI32, MemoryCategory::kWorkspace);
}

StateToWrite StagingMemory::copy() {
  StateToWrite state = state_to_write(session_);
  auto* place = static_cast<std::byte*>(memory_.data());
  Backend* waited_for = nullptr;
  for (const StatePartOwned& part : state.parts) {
    Backend& backend = part.values.backend();
    if (backend.host_reaches_memory()) {
      if (&backend != waited_for) backend.synchronize(backend.compute_stream());
      waited_for = &backend;
      std::memcpy(place, part.values.data(), part.values.bytes());
    } else {
      part.values.read(place);
    }
    state.staged.push_back(place);
    place += aligned(part.values.bytes());
  }
  return state;
}

}  // namespace fsdp::tools
