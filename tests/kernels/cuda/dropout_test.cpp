// Dropout on a GPU draws the masks of the CPU backend, whatever sizes and places.
#include "tests/support/gpu_support.h"

namespace fsdp::test {
namespace {

TEST_CASE("dropout gives the bits of the CPU") {
  on_gpu([](Backend& gpu) {
    cpu::CpuBackend cpu;
    for (const DType dtype : kGpuTypes) {
      for (const double probability : {0.0, 0.3, 1.0}) {
        for (const int64_t size : {1, 6, 8, 33, 4104}) {
          for (const int64_t offset : {0, 1}) {
            const auto run = [&](Backend& backend) {
              const Tensor samples =
                  Tensor::from_host<int64_t>(backend, {3}, {7, 0, (int64_t{1} << 33) + 5});
              const Dropout args = {probability, {42, 3, 1, 2, 5}, &samples};
              Tensor x =
                  shifted_tensor(backend, {3, size}, dtype, random_values(3 * size, 1), offset);
              backend.run(backend.compute_stream(), DropoutArgs{args, x, x});
              return x.to_doubles();
            };
            CHECK(run(gpu) == run(cpu));
          }
        }
      }
    }
  });
}

}  // namespace
}  // namespace fsdp::test
