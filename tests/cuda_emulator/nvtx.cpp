// The emulated GPU's NVTX: what was pushed and popped by each thread, for tests to read.
#include "kernels/cuda/nvtx.h"

#include "tests/cuda_emulator/emulator.h"

namespace fsdp::emulator {
namespace {

thread_local bool recording = false;
thread_local std::vector<std::string> recorded;

}  // namespace

void record_ranges(bool on) {
  recording = on;
  if (on) recorded.clear();
}
std::vector<std::string> recorded_ranges() { return recorded; }

}  // namespace fsdp::emulator

namespace fsdp::cuda::nvtx {

void push(const char* name) {
  if (emulator::recording) emulator::recorded.push_back(name);
}
void pop() {
  if (emulator::recording) emulator::recorded.emplace_back();
}

}  // namespace fsdp::cuda::nvtx
