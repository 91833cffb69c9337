// The last step of sums over rows, and sums over the rows of a matrix in memory. No atomics: the
// same bits every time.
#include "core/layer_args.h"
#include "kernels/cuda/column_sums.h"

namespace fsdp::cuda {
namespace {

constexpr int kPartialWarps = 32;  // there are few columns and many rows: as many as a block has

// Where sums go, and where their columns begin in a row of partials.
struct SumTarget {
  AnyElements out;
  int64_t first;
  bool accumulate;
};

// mapping: grid y is the target; a lane per column, the warps take the rows in turn
// bytes:   those of partials, once
// in f32:  the sums
// source:  none
__global__ void __launch_bounds__(kPartialWarps* kWarpSize)
    sum_partials(const float* partials, int64_t rows, int64_t stride, int64_t columns,
                 SumTarget one, SumTarget other) {
  const SumTarget to = blockIdx.y == 0 ? one : other;
  const int lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kWarpSize + lane;
  float sum = 0;
  if (column < columns) {
#pragma unroll 4
    for (int64_t row = warp; row < rows; row += kPartialWarps)
      sum += partials[row * stride + to.first + column];
  }
  FSDP_SHARED(tile, float[kPartialWarps][kWarpSize]);
  tile[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || column >= columns) return;
  for (int from = 1; from < kPartialWarps; ++from) sum += tile[from][lane];
  double total[1] = {sum};
  if (to.accumulate) {
    to.out.load<1>(column, total);
    total[0] += sum;
  }
  to.out.store<1>(column, total);
}

}  // namespace

void add_partials(const Op& op, const float* partials, int64_t rows, int64_t stride,
                  std::initializer_list<ColumnSums> sums) {
  std::vector<SumTarget> targets;
  int64_t columns = 0;
  for (const ColumnSums& s : sums) {
    if (!s.out) continue;
    dispatch_device_wide(s.out->dtype(), op.name(), [](auto) {});  // refuses what is not floating
    targets.push_back({AnyElements(*s.out), s.first, s.accumulate});
    columns = s.out->numel();
  }
  if (targets.empty()) return;
  launch(sum_partials, Grid(blocks_for(columns, kWarpSize), static_cast<int64_t>(targets.size())),
         kPartialWarps * kWarpSize, 0, op, partials, rows, stride, columns, targets.front(),
         targets.back());
}

namespace {

// The rows of a matrix.
template <typename T>
struct StoredRows {
  const T* x;
  int64_t row_length;

  template <int V>
  __device__ void values(int64_t row, int64_t column, float (&out)[V]) const {
    load_widened<V>(x + row * row_length + column, out);
  }
};

}  // namespace

template <>
void CudaBackend::compute(Stream& stream, const SumRowsArgs& args) {
  const Op op(*this, stream, args);
  const int64_t row_length = args.x.shape().last();
  dispatch_device(args.x.dtype(), op.name(), [&]<typename T>(TypeTag<T>) {
    const bool aligned = aligned_to_16({args.x.data()}) && row_length % run_of<T>() == 0;
    sum_columns<run_of<T>()>(op, StoredRows<T>{args.x.data_as<T>(), row_length},
                             args.x.shape().rows(), aligned, args.out, args.accumulate);
  });
}

}  // namespace fsdp::cuda
