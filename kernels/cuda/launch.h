// The one way a kernel starts. Kernels are ordinary __global__ functions; arguments convert to its
// parameters. The emulator of the tests starts them through the same call.
#pragma once

#include "kernels/cuda/intrinsics.h"
#include "kernels/cuda/op.h"

namespace fsdp::cuda {

// Blocks of a grid, and where in the source it was asked for (errors tell).
struct Grid {
  Grid(int64_t x, std::source_location location = std::source_location::current())
      : Grid(x, 1, 1, location) {}
  Grid(int64_t x, int64_t y, int64_t z = 1,
       std::source_location location = std::source_location::current())
      : extent(static_cast<unsigned>(x), static_cast<unsigned>(y), static_cast<unsigned>(z)),
        empty(x == 0 || y == 0 || z == 0),
        at(location) {
    FSDP_CHECK(x >= 0 && y >= 0 && z >= 0 && x < (int64_t{1} << 31) && y < 65536 && z < 65536,
               "[launch] grid: expected at most 2^31-1 x 65535 x 65535 blocks, got {} x {} x {}", x,
               y, z);
  }

  dim3 extent;
  bool empty;
  std::source_location at;
};

inline int64_t blocks_for(int64_t items, int64_t per_block) {
  return (items + per_block - 1) / per_block;
}

// launch(kernel, grid, threads of a block, bytes of dynamic shared memory, op, arguments...).
// An empty grid is nothing to do.
template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), const Grid& grid, dim3 block, size_t shared_bytes,
            const Op& op, Arguments&&... arguments) {
  if (grid.empty) return;
  if (shared_bytes > 0) {
    size_t static_bytes = 0;
    op.started(find_static_shared(kernel, static_bytes), "static shared memory", grid.at);
    FSDP_CHECK(static_bytes + shared_bytes <= op.device().shared_per_block,
               "[{}] shared memory: a block needs {} bytes, {} gives it {} at most", op.describe(),
               static_bytes + shared_bytes, op.device().name, op.device().shared_per_block);
    // Whatever the size: not asked for, 48 KiB is all there is, less what is static.
    op.started(allow_shared(kernel, shared_bytes), "dynamic shared memory", grid.at);
  }
  op.started(start_kernel(kernel, grid.extent, block, shared_bytes, op.stream(),
                          std::forward<Arguments>(arguments)...),
             "launch", grid.at);
}

}  // namespace fsdp::cuda
