// Layer norm and RMS norm, forward, with the residual add before it. Bound by memory: a row is read
// once and stays in registers; the variance is a second pass over those.
// Read next: norm_backward.cu.
#include "core/layer_args.h"
#include "kernels/cuda/norm.h"

namespace fsdp::cuda {
namespace {

// A row is taken by a warp of a block of four, or by a whole block.
constexpr int norm_block(int group) { return group == kWarpSize ? 4 * kWarpSize : group; }

template <typename T>
struct NormForward {
  const T* x;
  const T* residual;  // or null
  T* sum;
  const T* weight;
  const T* bias;  // or null
  T* y;
  float* mean;  // null: RMS norm
  float* rstd;
  int64_t rows;
  int columns;
  float epsilon;

  explicit NormForward(const NormForwardArgs& args)
      : x(args.x.data_as<T>()),
        residual(args.residual ? args.residual->data_as<T>() : nullptr),
        sum(args.sum ? args.sum->data_as<T>() : nullptr),
        weight(args.weight.data_as<T>()),
        bias(args.bias ? args.bias->data_as<T>() : nullptr),
        y(args.y.data_as<T>()),
        mean(args.mean ? args.mean->data_as<float>() : nullptr),
        rstd(args.rstd.data_as<float>()),
        rows(args.x.shape().rows()),
        columns(static_cast<int>(args.x.shape().last())),
        epsilon(static_cast<float>(args.epsilon)) {}

  bool aligned() const {
    return aligned_to_16({x, residual, sum, weight, bias, y}) && columns % run_of<T>() == 0;
  }
  // Of one row; by one thread.
  __device__ void save(int64_t row, float row_mean, float row_rstd) const {
    if (mean) mean[row] = row_mean;
    rstd[row] = row_rstd;
  }
  // values: elements of a row from `column` on.
  template <int V>
  __device__ void write(int64_t at, int column, float row_mean, float row_rstd,
                        float (&values)[V]) const {
    float scales[V], shifts[V] = {};
    load_widened<V>(weight + column, scales);
    if (bias) load_widened<V>(bias + column, shifts);
#pragma unroll
    for (int j = 0; j < V; ++j) {
      float h = (values[j] - row_mean) * row_rstd;
      if (!mean) h = widened<float>(narrowed<T>(h));
      values[j] = h * scales[j] + shifts[j];
    }
    store_narrowed<V>(y + at + column, values);
  }
};

// mapping: a warp or a block per row, kPackets of 16 bytes a thread
// bytes:   2 N C elements and N statistics; with residual 4 N C
// in f32:  the row, its statistics (RMS norm rounds x * rstd, as Llama does)
// source:  Ba et al. 2016, "Layer normalization"; Zhang & Sennrich 2019, "Root mean square layer
//          normalization"
template <typename T, int kGroup, int kPackets>
__global__ void __launch_bounds__(norm_block(kGroup)) norm_forward_rows(NormForward<T> a) {
  constexpr int V = run_of<T>(), kRows = norm_block(kGroup) / kGroup;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRows + threadIdx.x / kGroup;
  if (row >= a.rows) return;  // whole groups
  const int64_t at = row * a.columns;
  const int first = static_cast<int>(threadIdx.x) % kGroup * V;
  uint4 x[kPackets], residual[kPackets];
#pragma unroll
  for (int p = 0; p < kPackets; ++p) {
    const int column = first + p * kGroup * V;
    if (column < a.columns) x[p] = load_packet(a.x + at + column);
  }
  if (a.residual) {
#pragma unroll
    for (int p = 0; p < kPackets; ++p) {
      const int column = first + p * kGroup * V;
      if (column < a.columns) residual[p] = load_packet(a.residual + at + column);
    }
  }
  float values[kPackets][V] = {}, total[1] = {};
#pragma unroll
  for (int p = 0; p < kPackets; ++p) {
    const int column = first + p * kGroup * V;
    if (column >= a.columns) continue;
    unpack<T>(x[p], values[p]);
    if (a.residual) {
      float addends[V];
      unpack<T>(residual[p], addends);
#pragma unroll
      for (int j = 0; j < V; ++j) {
        values[p][j] = widened<float>(narrowed<T>(values[p][j] + addends[j]));
      }
      store_narrowed<V>(a.sum + at + column, values[p]);
    }
#pragma unroll
    for (int j = 0; j < V; ++j) total[0] += values[p][j];
  }
  float mean = 0;
  if (a.mean) {
    group_sums<kGroup>(total);
    mean = total[0] / static_cast<float>(a.columns);
  }
  float squares[1] = {};
#pragma unroll
  for (int p = 0; p < kPackets; ++p) {
    if (first + p * kGroup * V >= a.columns) continue;
#pragma unroll
    for (int j = 0; j < V; ++j) squares[0] += (values[p][j] - mean) * (values[p][j] - mean);
  }
  group_sums<kGroup>(squares);
  const float rstd = 1 / sqrtf(squares[0] / static_cast<float>(a.columns) + a.epsilon);
  if (first == 0) a.save(row, mean, rstd);
#pragma unroll
  for (int p = 0; p < kPackets; ++p) {
    const int column = first + p * kGroup * V;
    if (column < a.columns) a.template write<V>(at, column, mean, rstd, values[p]);
  }
}

constexpr int kAnyThreads = 256;

// mapping: a block per row of any length and alignment, read again for each of three passes
// bytes:   4 N C elements, half of them from a cache
// in f32:  as norm_forward_rows
// source:  as norm_forward_rows
template <typename T, int V>
__global__ void __launch_bounds__(kAnyThreads) norm_forward_any(NormForward<T> a) {
  const int64_t row = blockIdx.x, at = row * a.columns;
  const int first = static_cast<int>(threadIdx.x) * V;
  constexpr int kStep = kAnyThreads * V;
  const T* x = a.residual ? a.sum : a.x;  // a thread reads what it has written itself
  float total[1] = {}, squares[1] = {}, values[V];
  for (int column = first; column < a.columns; column += kStep) {
    load_widened<V>(a.x + at + column, values);
    if (a.residual) {
      float addends[V];
      load_widened<V>(a.residual + at + column, addends);
#pragma unroll
      for (int j = 0; j < V; ++j) values[j] = widened<float>(narrowed<T>(values[j] + addends[j]));
      store_narrowed<V>(a.sum + at + column, values);
    }
#pragma unroll
    for (int j = 0; j < V; ++j) total[0] += values[j];
  }
  group_sums<kAnyThreads>(total);
  const float mean = a.mean ? total[0] / static_cast<float>(a.columns) : 0;
  for (int column = first; column < a.columns; column += kStep) {
    load_widened<V>(x + at + column, values);
#pragma unroll
    for (int j = 0; j < V; ++j) squares[0] += (values[j] - mean) * (values[j] - mean);
  }
  group_sums<kAnyThreads>(squares);
  const float rstd = 1 / sqrtf(squares[0] / static_cast<float>(a.columns) + a.epsilon);
  if (first == 0) a.save(row, mean, rstd);
  for (int column = first; column < a.columns; column += kStep) {
    load_widened<V>(x + at + column, values);
    a.template write<V>(at, column, mean, rstd, values);
  }
}

void norm_forward(CudaBackend& backend, Stream& stream, std::string_view name,
                  const NormForwardArgs& args) {
  const Op op(backend, stream, name, args);
  dispatch_device(args.x.dtype(), op.name(), [&]<typename T>(TypeTag<T>) {
    const NormForward<T> a(args);
    const auto rows_with = [&]<int kGroup, int kPackets>() {
      constexpr int kThreads = norm_block(kGroup);
      launch(norm_forward_rows<T, kGroup, kPackets>, Grid(blocks_for(a.rows, kThreads / kGroup)),
             kThreads, 0, op, a);
    };
    if (!a.aligned()) {
      launch(norm_forward_any<T, 1>, Grid(a.rows), kAnyThreads, 0, op, a);
    } else if (a.columns <= columns_of<T>(32, 4)) {
      rows_with.template operator()<32, 4>();
    } else if (a.columns <= columns_of<T>(32, 8)) {
      rows_with.template operator()<32, 8>();
    } else if (a.columns <= columns_of<T>(128, 4)) {
      rows_with.template operator()<128, 4>();
    } else if (a.columns <= columns_of<T>(512, 4)) {
      rows_with.template operator()<512, 4>();
    } else {
      launch(norm_forward_any<T, run_of<T>()>, Grid(a.rows), kAnyThreads, 0, op, a);
    }
  });
}

}  // namespace

template <>
void CudaBackend::compute(Stream& stream, const LayerNormForwardArgs& args) {
  norm_forward(*this, stream, args.name(), args);
}

template <>
void CudaBackend::compute(Stream& stream, const RmsNormForwardArgs& args) {
  norm_forward(*this, stream, args.name(), args);
}

}  // namespace fsdp::cuda
