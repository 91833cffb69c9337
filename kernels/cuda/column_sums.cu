// Sums over rows: partial sums of chunks of rows, then those in order. No atomics: the same bits
// every time.
#include "kernels/cuda/column_sums.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/workspace.h"

namespace fsdp::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarpSize;
constexpr int64_t kMinChunkRows = 8 * kWarps;
constexpr int64_t kBlocksPerMultiprocessor = 8;

// mapping: grid x takes 32 V columns, grid y a chunk of rows; a warp per row, in turn
// bytes:   those of x, once
// in f32:  the sums
// source:  core/kernel_args.h, SumRowsArgs
template <typename T, int V>
__global__ void __launch_bounds__(kThreads)
    sum_chunks(const T* x, int64_t row_length, float* partials, int64_t rows, int64_t columns,
               int64_t chunk_rows) {
  const int lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kWarpSize * V;
  const int64_t column = first + lane * V;
  const int64_t begin = blockIdx.y * chunk_rows;
  const int64_t end = begin + chunk_rows < rows ? begin + chunk_rows : rows;
  float sums[V] = {};
  if (column + V <= columns) {
#pragma unroll 4
    for (int64_t row = begin + warp; row < end; row += kWarps) {
      float values[V];
      load_widened<V>(x + row * row_length + column, values);
#pragma unroll
      for (int j = 0; j < V; ++j) sums[j] += values[j];
    }
  } else if (column < columns) {
    for (int64_t row = begin + warp; row < end; row += kWarps) {
#pragma unroll
      for (int j = 0; j < V; ++j) {
        if (column + j < columns) sums[j] += widened<float>(x[row * row_length + column + j]);
      }
    }
  }
  FSDP_SHARED(tile, float[kWarps][kWarpSize * V]);
#pragma unroll
  for (int j = 0; j < V; ++j) tile[warp][lane * V + j] = sums[j];
  __syncthreads();
  for (int j = threadIdx.x; j < kWarpSize * V && first + j < columns; j += kThreads) {
    float total = tile[0][j];
#pragma unroll
    for (int from = 1; from < kWarps; ++from) total += tile[from][j];
    partials[blockIdx.y * columns + first + j] = total;
  }
}

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

void CudaBackend::compute(Stream& stream, const SumRowsArgs& args) {
  const Op op(*this, stream, args);
  const int64_t columns = args.out.numel();
  if (columns == 0) return;
  const int64_t rows = args.x.shape().rows(), row_length = args.x.shape().last();
  dispatch_device(args.x.dtype(), op.name(), [&]<typename T>(TypeTag<T>) {
    constexpr int kRun = run_of<T>();
    const bool aligned = aligned_to_16({args.x.data()}) && row_length % kRun == 0;
    const int64_t across = blocks_for(columns, kWarpSize * (aligned ? kRun : 1));
    const int64_t wanted = blocks_for(kBlocksPerMultiprocessor * device_.multiprocessors, across);
    const int64_t chunk_rows = std::max(kMinChunkRows, blocks_for(rows, wanted));
    const int64_t chunks = blocks_for(rows, chunk_rows);
    const Workspace<float> partials(op, chunks * columns);
    launch(aligned ? sum_chunks<T, kRun> : sum_chunks<T, 1>, Grid(across, chunks), kThreads, 0, op,
           args.x.data_as<T>(), row_length, partials.data(), rows, columns, chunk_rows);
    add_partials(op, partials.data(), chunks, columns, {{&args.out, 0, args.accumulate}});
  });
}

}  // namespace fsdp::cuda
