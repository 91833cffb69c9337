// What the two implementations of ThreadTeam share: scratch memory.
#include "kernels/cpu/parallel.h"

#include <new>

namespace fsdp::cpu {

void* ThreadTeam::scratch(int thread, size_t bytes) {
  constexpr std::align_val_t kAlignment{64};
  Scratch& scratch = scratch_[static_cast<size_t>(thread)];
  if (scratch.bytes < bytes) {
    scratch.data = {nullptr, nullptr};  // first, so that the two are never held together
    scratch.bytes = 0;
    scratch.data = {static_cast<std::byte*>(::operator new(bytes, kAlignment)),
                    [](std::byte* data) { ::operator delete(data, kAlignment); }};
    scratch.bytes = bytes;
  }
  return scratch.data.get();
}

}  // namespace fsdp::cpu
