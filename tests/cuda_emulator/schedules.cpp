// The orders of threads and blocks that every test of a kernel runs in. On a GPU:
// tests/kernels/cuda/schedules.cpp. CUDA_EMULATOR_SKIP (a place, as in emulator.h) leaves a barrier
// or a wait out, CUDA_EMULATOR_PLACES (a file) gets the places that were reached: with the two,
// tests/cuda_emulator/mutations.sh shows that every barrier is needed.
#include <cstdlib>
#include <fstream>

#include "tests/cuda_emulator/emulator.h"
#include "tests/support/gpu_support.h"

namespace fsdp::test {
namespace {

void write_places() {
  if (const char* file = std::getenv("CUDA_EMULATOR_PLACES")) {
    std::ofstream out(file);
    for (const std::string& place : emulator::places()) out << place << "\n";
  }
}

}  // namespace

void on_every_schedule(const std::function<void()>& body) {
  using emulator::ThreadOrder;
  struct Schedule {
    ThreadOrder order;
    uint64_t seed;
    bool early_copies;
  };
  const char* skip = std::getenv("CUDA_EMULATOR_SKIP");
  for (const auto& [order, seed, early] : {Schedule{ThreadOrder::kForward, 0, false},
                                           {ThreadOrder::kReverse, 0, true},
                                           {ThreadOrder::kRandom, 1, false}}) {
    emulator::Settings settings = emulator::settings();
    settings.order = order;
    settings.seed = seed;
    settings.early_copies = early;
    if (skip) settings.leave_out = [skip](const std::string& place) { return place == skip; };
    const emulator::Configured configured(settings);
    CAPTURE(static_cast<int>(order));
    body();
  }
  write_places();
}

}  // namespace fsdp::test
