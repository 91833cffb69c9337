// copy_heads on a GPU: the bits of the CPU backend, with rows that are aligned and that are not.
#include "tests/support/gpu_support.h"

namespace fsdp::test {
namespace {

TEST_CASE("heads join a longer sequence, and nothing else moves") {
  on_gpu([](Backend& gpu) {
    cpu::CpuBackend cpu;
    constexpr int64_t kBatch = 2, kTokens = 5, kRoom = 9, kFirst = 3, kHeads = 3;
    for (const DType dtype : kGpuTypes) {
      for (const int64_t width : {5, 8, 40}) {
        const auto run = [&](Backend& backend) {
          const auto filled = [&](Shape shape, uint64_t seed) {
            return make_tensor(backend, shape, dtype, random_values(shape.numel(), seed));
          };
          // the keys of rows [head, (q, k, v), width], into rows with one head before them
          const Tensor from = filled({kBatch, kTokens, kHeads * 3 * width}, 1);
          const Tensor to = filled({kBatch, kRoom, (kHeads + 1) * width}, 2);
          backend.run(backend.compute_stream(),
                      CopyHeadsArgs{{&from, kHeads, width, width, 3 * width},
                                    {&to, kHeads, width, width, width},
                                    kFirst});
          return to.to_doubles();
        };
        CHECK(run(gpu) == run(cpu));
      }
    }
  });
}

}  // namespace
}  // namespace fsdp::test
