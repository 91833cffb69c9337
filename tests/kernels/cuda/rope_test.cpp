// Rotary embedding on a GPU against the CPU backend (which is tested against complex numbers).
#include "tests/support/gpu_support.h"

namespace fsdp::test {
namespace {

struct RopeCase {
  int64_t batch, length, heads, half, offset, head_stride, row_width, first_position;
};
constexpr RopeCase kCases[] = {
    {1, 1, 1, 1, 0, 2, 2, 0},       {2, 5, 3, 3, 0, 6, 18, 0},
    {2, 7, 3, 3, 4, 12, 45, 2},      // a part of each head, an offset, gaps, a later position
    {1, 3, 2, 32, 128, 64, 384, 0},  // inside packed rows
    {2, 4, 5, 8, 16, 48, 256, 9},    // packets of 16 bytes, part of a head
    {1, 2, 2, 8, 3, 16, 64, 0},      // as wide, but not aligned
};

TEST_CASE("rope forward and inverse, in place; what lies between stays") {
  on_gpu([](cuda::CudaBackend& gpu) {
    for (const DType dtype : kGpuTypes) {
      for (const RopeCase& c : kCases) {
        for (const int64_t shift : {0, 1}) {
          check_against_cpu(gpu, dtype, [&](Backend& backend) {
            const Shape shape = {c.batch, c.length, c.row_width};
            Tensor x =
                shifted_tensor(backend, shape, dtype, random_values(shape.numel(), 1), shift);
            const Shape table = {c.length + c.first_position, c.half};
            const Tensor cos = random_tensor(backend, table, DType::kF32, 2);
            const Tensor sin = random_tensor(backend, table, DType::kF32, 3);
            const auto rotate = [&](bool inverse) {
              backend.run(backend.compute_stream(), RopeArgs{.x = {.tensor = &x,
                                                                   .heads = c.heads,
                                                                   .head_dim = 2 * c.half,
                                                                   .offset = c.offset,
                                                                   .head_stride = c.head_stride},
                                                             .cos = cos,
                                                             .sin = sin,
                                                             .first_position = c.first_position,
                                                             .inverse = inverse});
              return x.to_doubles();
            };
            const Values forward = rotate(false);
            x = make_tensor(backend, shape, dtype, random_values(shape.numel(), 4));
            return std::vector<Values>{forward, rotate(true)};
          });
        }
      }
    }
  });
}

}  // namespace
}  // namespace fsdp::test
