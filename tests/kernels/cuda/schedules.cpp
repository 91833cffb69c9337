// A real GPU schedules by itself, so a body runs twice: what must give the same bits every time is
// seen to. The emulator's schedules: tests/cuda_emulator/schedules.cpp.
#include "tests/support/gpu_support.h"

namespace fsdp::test {

void on_every_schedule(const std::function<void()>& body) {
  for (int run = 0; run < 2; ++run) body();
}

}  // namespace fsdp::test
