// Rounding by chance on a GPU: the bits of the CPU backend.
#include "tests/support/gpu_support.h"
#include "tests/support/rounding_case.h"

namespace fsdp::test {
namespace {

TEST_CASE("rounding by chance gives the bits of the CPU") {
  on_gpu([](cuda::CudaBackend& gpu) {
    cpu::CpuBackend cpu;
    for (const RoundingCase& c : rounding_cases()) {
      CAPTURE(c.n);
      CAPTURE(c.offset);
      CHECK((round_on(gpu, c) == round_on(cpu, c)));
    }
  });
}

}  // namespace
}  // namespace fsdp::test
