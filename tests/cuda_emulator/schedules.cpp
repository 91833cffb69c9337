// The orders of threads and blocks that every test of a kernel runs in. On a GPU:
// tests/kernels/cuda/schedules.cpp.
#include "tests/cuda_emulator/emulator.h"
#include "tests/support/gpu_support.h"

namespace fsdp::test {

void on_every_schedule(const std::function<void()>& body) {
  using emulator::ThreadOrder;
  struct Schedule {
    ThreadOrder order;
    uint64_t seed;
    bool early_copies;
  };
  for (const auto& [order, seed, early] : {Schedule{ThreadOrder::kForward, 0, false},
                                           {ThreadOrder::kReverse, 0, true},
                                           {ThreadOrder::kRandom, 1, false}}) {
    emulator::Settings settings = emulator::settings();
    settings.order = order;
    settings.seed = seed;
    settings.early_copies = early;
    const emulator::Configured configured(settings);
    CAPTURE(static_cast<int>(order));
    body();
  }
}

}  // namespace fsdp::test
