// The emulated GPU's NVTX: what was pushed and popped by each thread, for tests to read.
#include "kernels/cuda/nvtx.h"

#include "tests/cuda_emulator/emulator.h"

namespace fsdp::emulator {
namespace {

thread_local bool recording = false;
thread_local std::vector<std::string> recorded;
thread_local std::vector<std::string> open;

}  // namespace

void record_ranges(bool on) {
  recording = on;
  if (on) recorded.clear();
}
std::vector<std::string> recorded_ranges() { return recorded; }
std::string innermost_range() { return open.empty() ? "" : open.back(); }

}  // namespace fsdp::emulator

namespace fsdp::cuda::nvtx {

void push(const char* name) {
  emulator::open.emplace_back(name);
  if (emulator::recording) emulator::recorded.push_back(name);
}
void pop() {
  emulator::open.pop_back();
  if (emulator::recording) emulator::recorded.emplace_back();
}

}  // namespace fsdp::cuda::nvtx
