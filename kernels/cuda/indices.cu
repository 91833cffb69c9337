// The first index that lies outside of its table, found on the device and told through the host
// mirror of the stream (kernels/cuda/stream.h).
#include "kernels/cuda/elements.h"
#include "kernels/cuda/indices.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/workspace.h"

namespace fsdp::cuda {
namespace {

constexpr int kThreads = 512;

struct Outside {
  int64_t position;  // n: none
  int64_t value;
};

// mapping: one block
// bytes:   those of ids
// in i32:  all
// source:  none
__global__ void __launch_bounds__(kThreads)
    find_outside(const int32_t* ids, int64_t n, int64_t limit, int32_t allowed, bool aligned,
                 Outside* out) {
  int64_t first = n;
  each_run<4>(0, n, aligned, threadIdx.x, kThreads, [&]<int V>(int64_t i) {
    int32_t run[V];
    load_run<V>(ids + i, run);
#pragma unroll
    for (int j = V - 1; j >= 0; --j) {
      const bool outside = (run[j] < 0 || run[j] >= limit) && run[j] != allowed;
      if (outside && i + j < first) first = i + j;
    }
  });
  first = -block_reduce<kThreads>(-first, Maximum());
  if (threadIdx.x == 0) *out = {first, first < n ? ids[first] : 0};
}

}  // namespace

void check_indices(const Op& op, const Tensor& ids, int64_t limit, int32_t allowed,
                   std::function<void(int64_t position, int32_t value)> report) {
  const int64_t n = ids.numel();
  if (n == 0) return;
  const Workspace<Outside> found(op, 1);
  launch(find_outside, Grid(1), kThreads, 0, op, ids.data_as<int32_t>(), n, limit, allowed,
         aligned_to_16({ids.data()}), found.data());
  const auto outside = std::make_shared<Outside>();
  op.backend().read_later(op.cuda_stream(), outside.get(), found.data(), sizeof(Outside),
                          [outside, n, report = std::move(report)] {
                            if (outside->position == n) return;
                            report(outside->position, static_cast<int32_t>(outside->value));
                          });
}

}  // namespace fsdp::cuda
