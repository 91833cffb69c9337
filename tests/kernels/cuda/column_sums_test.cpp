// Sums over rows on a GPU against the CPU backend.
#include "tests/support/gpu_support.h"

namespace fsdp::test {
namespace {

TEST_CASE("sum_rows of every dtype, size and alignment") {
  on_gpu([](cuda::CudaBackend& gpu) {
    for (const DType dtype : kGpuTypes) {
      for (const Shape& shape : {Shape{1, 1}, Shape{0, 9}, Shape{3, 0}, Shape{70, 7}, Shape{2, 264},
                                 Shape{261, 40}, Shape{20, 261}}) {
        for (const int64_t offset : {0, 1}) {
          check_against_cpu(gpu, dtype, [&](Backend& backend) {
            const Tensor x =
                shifted_tensor(backend, shape, dtype, random_values(shape.numel(), 1), offset);
            Tensor sums = Tensor::empty(backend, {shape[1]}, dtype);
            Tensor added = random_tensor(backend, {shape[1]}, dtype, 2);
            backend.run(backend.compute_stream(), SumRowsArgs{.x = x, .out = sums});
            backend.run(backend.compute_stream(),
                        SumRowsArgs{.x = x, .out = added, .accumulate = true});
            Tensor of_padded = Tensor::empty(backend, {shape[1]}, dtype);
            // without an offset to rows of whole runs, of which the last column may be in the midst
            const int64_t padding = offset == 0 ? 16 - shape[1] % 8 : 11;
            const Tensor padded = padded_tensor(backend, shape[1], padding, dtype, x.to_doubles());
            backend.run(backend.compute_stream(), SumRowsArgs{.x = padded, .out = of_padded});
            return std::vector<Values>{sums.to_doubles(), added.to_doubles(),
                                       of_padded.to_doubles()};
          });
        }
      }
    }
  });
}

TEST_CASE("sum_rows into another dtype") {
  on_gpu([](cuda::CudaBackend& gpu) {
    for (const DType from : kGpuTypes) {
      for (const DType to : kGpuTypes) {
        check_against_cpu(gpu, to, [&](Backend& backend) {
          const Tensor x = random_tensor(backend, {33, 24}, from, 1);
          Tensor sums = random_tensor(backend, {24}, to, 2);
          backend.run(backend.compute_stream(),
                      SumRowsArgs{.x = x, .out = sums, .accumulate = true});
          return std::vector<Values>{sums.to_doubles()};
        });
      }
    }
  });
}

}  // namespace
}  // namespace fsdp::test
