// A real GPU schedules by itself. The emulator's: tests/cuda_emulator/schedules.cpp.
#include "tests/support/gpu_support.h"

namespace fsdp::test {

void on_every_schedule(const std::function<void()>& body) { body(); }

}  // namespace fsdp::test
