// Table lookup, with the position's row added, and the gradient of the position table. Bound by
// memory. Read next: embedding_backward.cu.
#include "core/layer_args.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/indices.h"
#include "kernels/cuda/reduce.h"

namespace fsdp::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarpSize;

// mapping: a warp per row
// bytes:   2 N C elements; those of positions come from a cache
// in f32:  the sum with the position
// source:  core/kernel_args.h, embedding_forward
template <typename T, int V>
__global__ void __launch_bounds__(kThreads)
    look_up(const int32_t* tokens, const T* table, const T* positions, T* y, int64_t rows,
            int64_t length, int64_t vocabulary, int64_t columns) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarpSize;
  if (row >= rows) return;
  const int64_t token = tokens[row];
  const bool inside = token >= 0 && token < vocabulary;  // else: see indices.h
  const T* from = table + (inside ? token : 0) * columns;
  const T* position = positions ? positions + row % length * columns : nullptr;
#pragma unroll 4
  for (int64_t c = threadIdx.x % kWarpSize * V; c < columns; c += kWarpSize * V) {
    float values[V], addends[V] = {};
    load_widened<V>(from + c, values);
    if (position) load_widened<V>(position + c, addends);
#pragma unroll
    for (int j = 0; j < V; ++j) values[j] += addends[j];
    store_narrowed<V>(y + row * columns + c, values);
  }
}

// mapping: a thread per V columns of a position, batch rows in order
// bytes:   those of dy and dpositions, once
// in f32:  the sum
// source:  core/kernel_args.h, position_backward
template <typename T, int V>
__global__ void __launch_bounds__(kThreads)
    sum_positions(const T* dy, AnyElements out, int64_t batch, int64_t length, int64_t columns,
                  int64_t n, bool accumulate) {
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * V;
  if (i >= n) return;
  float sums[V] = {};
  if (accumulate) out.load<V>(i, sums);
  if (i < length * columns) {
#pragma unroll 4
    for (int64_t b = 0; b < batch; ++b) {
      float values[V];
      load_widened<V>(dy + b * length * columns + i, values);
#pragma unroll
      for (int j = 0; j < V; ++j) sums[j] += values[j];
    }
  }
  out.store<V>(i, sums);
}

}  // namespace

template <>
void CudaBackend::compute(Stream& stream, const EmbeddingForwardArgs& args) {
  const Tensor &tokens = args.tokens, &table = args.table, &y = args.y;
  const Tensor* const positions = args.positions;
  const Op op(*this, stream, args);
  const int64_t rows = tokens.numel(), vocabulary = args.vocabulary(), columns = table.shape()[1];
  check_indices(op, tokens, vocabulary, 0, [vocabulary](int64_t, int32_t token) {
    fail("[embedding] token: expected in [0, {}), got {}", vocabulary, token);
  });
  dispatch_device(table.dtype(), op.name(), [&]<typename T>(TypeTag<T>) {
    constexpr int kRun = run_of<T>();
    const T* first = positions ? positions->data_as<T>() + args.first_position * columns : nullptr;
    const bool aligned = aligned_to_16({table.data(), first, y.data()}) && columns % kRun == 0;
    launch(aligned ? look_up<T, kRun> : look_up<T, 1>, Grid(blocks_for(rows, kWarps)), kThreads, 0,
           op, tokens.data_as<int32_t>(), table.data_as<T>(), first, y.data_as<T>(), rows,
           tokens.shape().last(), vocabulary, columns);
  });
}

template <>
void CudaBackend::compute(Stream& stream, const PositionBackwardArgs& args) {
  const Tensor &dy = args.dy, &dpositions = args.dpositions;
  const Op op(*this, stream, args);
  const int64_t batch = dy.shape()[0], length = dy.shape()[1], columns = dy.shape()[2];
  dispatch_device(dpositions.dtype(), op.name(), [](auto) {});  // refuses the others by name
  dispatch_device(dy.dtype(), op.name(), [&]<typename T>(TypeTag<T>) {
    constexpr int kRun = run_of<T>();
    const bool aligned = aligned_to_16({dy.data(), dpositions.data()}) && columns % kRun == 0;
    const int64_t n = dpositions.numel();
    launch(aligned ? sum_positions<T, kRun> : sum_positions<T, 1>,
           Grid(blocks_for(n, kThreads * (aligned ? kRun : 1))), kThreads, 0, op, dy.data_as<T>(),
           AnyElements(dpositions), batch, length, columns, n, args.accumulate);
  });
}

}  // namespace fsdp::cuda
