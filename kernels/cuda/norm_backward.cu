// Layer norm and RMS norm, backward, with the gradient that reaches the residual sum directly.
// A grid that fills the device walks over the rows; gradients of weight and bias add up in
// registers over the rows of a block, then over the blocks in order.
#include "core/layer_args.h"
#include "kernels/cuda/column_sums.h"
#include "kernels/cuda/norm.h"
#include "kernels/cuda/workspace.h"

namespace fsdp::cuda {
namespace {

constexpr int kPackets = 2;     // of 16 bytes, of each tensor, in the registers of a thread
constexpr int kResident = 512;  // threads of a multiprocessor, of up to 128 registers

template <typename T>
struct NormBackward {
  const T* dy;
  const T* dsum;  // or null
  const T* x;
  const T* weight;
  const float* mean;  // null: RMS norm
  const float* rstd;
  T* dx;
  float* partials;  // (blocks, 2, columns): of dweight, then of dbias; null: neither is wanted
  int64_t rows;
  int columns;

  explicit NormBackward(const NormBackwardArgs& args)
      : dy(args.dy.data_as<T>()),
        dsum(args.dsum ? args.dsum->data_as<T>() : nullptr),
        x(args.x.data_as<T>()),
        weight(args.weight.data_as<T>()),
        mean(args.mean ? args.mean->data_as<float>() : nullptr),
        rstd(args.rstd.data_as<float>()),
        dx(args.dx.data_as<T>()),
        partials(nullptr),
        rows(args.x.shape().rows()),
        columns(static_cast<int>(args.x.shape().last())) {}

  bool aligned() const {
    return aligned_to_16({dy, dsum, x, weight, dx}) && columns % run_of<T>() == 0;
  }
};

// What all elements of a row share. sums: of g and of g h, g = dy * weight, h = (x - mean) * rstd.
struct NormRow {
  float mean, rstd, mean_g = 0, mean_gh = 0;

  template <typename T>
  __device__ NormRow(const NormBackward<T>& a, int64_t row)
      : mean(a.mean ? a.mean[row] : 0), rstd(a.rstd[row]) {}
  __device__ float normed(float x) const { return (x - mean) * rstd; }
  template <typename T>
  __device__ void set(const NormBackward<T>& a, const float (&sums)[2]) {
    mean_g = a.mean ? sums[0] / static_cast<float>(a.columns) : 0;
    mean_gh = sums[1] / static_cast<float>(a.columns);
  }
  __device__ float gradient(float g, float h) const { return (g - mean_g - h * mean_gh) * rstd; }
};

// mapping: a block per row, in turn; kPackets of 16 bytes a thread, the same columns in every
//          row; the next row is on its way while this one is reduced
// bytes:   3 N C elements (dy, x, dx), with dsum 4 N C; partial sums of a block 8 C
// in f32:  all arithmetic and sums
// source:  as norm_forward_rows; sums over rows as in Karpathy's llm.c, but without atomics
template <typename T, int kThreads>
__global__ void __launch_bounds__(kThreads, kResident / kThreads)
    norm_backward_rows(NormBackward<T> a) {
  constexpr int V = run_of<T>();
  const int first = static_cast<int>(threadIdx.x) * V;
  const int64_t step = gridDim.x;
  uint4 dy[kPackets], x[kPackets], dsum[kPackets] = {};
  uint4 next_dy[kPackets], next_x[kPackets], next_dsum[kPackets] = {};
  const auto load = [&](const T* from, int64_t of, uint4(&to)[kPackets]) {
#pragma unroll
    for (int p = 0; p < kPackets; ++p) {
      const int column = first + p * kThreads * V;
      if (column < a.columns) to[p] = load_packet(from + of * a.columns + column);
    }
  };
  float dweight[kPackets][V] = {}, dbias[kPackets][V] = {};
  load(a.dy, blockIdx.x, dy);
  load(a.x, blockIdx.x, x);
  if (a.dsum) load(a.dsum, blockIdx.x, dsum);
  NormRow norm(a, blockIdx.x), next = norm;
  for (int64_t row = blockIdx.x; row < a.rows; row += step) {
    if (row + step < a.rows) {
      load(a.dy, row + step, next_dy);
      load(a.x, row + step, next_x);
      if (a.dsum) load(a.dsum, row + step, next_dsum);
      next = NormRow(a, row + step);
    }
    float sums[2] = {};
#pragma unroll
    for (int p = 0; p < kPackets; ++p) {
      const int column = first + p * kThreads * V;
      if (column >= a.columns) continue;
      float d[V], values[V], weights[V];
      unpack<T>(dy[p], d);
      unpack<T>(x[p], values);
      load_widened<V>(a.weight + column, weights);
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const float h = norm.normed(values[j]), g = d[j] * weights[j];
        sums[0] += g;
        sums[1] += g * h;
        dweight[p][j] += d[j] * h;
        dbias[p][j] += d[j];
      }
    }
    group_sums<kThreads>(sums);
    norm.set(a, sums);
#pragma unroll
    for (int p = 0; p < kPackets; ++p) {
      const int column = first + p * kThreads * V;
      if (column >= a.columns) continue;
      float d[V], values[V], weights[V];
      unpack<T>(dy[p], d);
      unpack<T>(x[p], values);
      load_widened<V>(a.weight + column, weights);
#pragma unroll
      for (int j = 0; j < V; ++j) {
        d[j] = norm.gradient(d[j] * weights[j], norm.normed(values[j]));
      }
      if (a.dsum) {
        unpack<T>(dsum[p], values);
#pragma unroll
        for (int j = 0; j < V; ++j) d[j] += values[j];
      }
      store_narrowed<V>(a.dx + row * a.columns + column, d);
      dy[p] = next_dy[p];
      x[p] = next_x[p];
      dsum[p] = next_dsum[p];
    }
    norm = next;
  }
  if (!a.partials) return;
  float* sums = a.partials + static_cast<int64_t>(blockIdx.x) * 2 * a.columns;
#pragma unroll
  for (int p = 0; p < kPackets; ++p) {
    const int column = first + p * kThreads * V;
    if (column >= a.columns) continue;
    store_narrowed<V>(sums + column, dweight[p]);
    store_narrowed<V>(sums + a.columns + column, dbias[p]);
  }
}

constexpr int kAnyThreads = 256;

// mapping: a block per row, in turn, of any length and alignment; sums over rows in memory
// bytes:   5 N C elements and 16 N C of partial sums, most of them from a cache
// in f32:  all arithmetic and sums
// source:  as norm_backward_rows
template <typename T, int V>
__global__ void __launch_bounds__(kAnyThreads) norm_backward_any(NormBackward<T> a) {
  const int first = static_cast<int>(threadIdx.x) * V;
  constexpr int kStep = kAnyThreads * V;
  float* dweight = a.partials + static_cast<int64_t>(blockIdx.x) * 2 * a.columns;
  float* dbias = dweight + a.columns;
  float d[V], values[V], weights[V];
  for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    const int64_t at = row * a.columns;
    NormRow norm(a, row);
    float sums[2] = {};
    for (int column = first; column < a.columns; column += kStep) {
      load_widened<V>(a.dy + at + column, d);
      load_widened<V>(a.x + at + column, values);
      load_widened<V>(a.weight + column, weights);
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const float h = norm.normed(values[j]), g = d[j] * weights[j];
        sums[0] += g;
        sums[1] += g * h;
        if (!a.partials) continue;
        const bool begun = row != blockIdx.x;
        dweight[column + j] = (begun ? dweight[column + j] : 0) + d[j] * h;
        dbias[column + j] = (begun ? dbias[column + j] : 0) + d[j];
      }
    }
    group_sums<kAnyThreads>(sums);
    norm.set(a, sums);
    for (int column = first; column < a.columns; column += kStep) {
      load_widened<V>(a.dy + at + column, d);
      load_widened<V>(a.x + at + column, values);
      load_widened<V>(a.weight + column, weights);
#pragma unroll
      for (int j = 0; j < V; ++j) {
        d[j] = norm.gradient(d[j] * weights[j], norm.normed(values[j]));
      }
      if (a.dsum) {
        load_widened<V>(a.dsum + at + column, values);
#pragma unroll
        for (int j = 0; j < V; ++j) d[j] += values[j];
      }
      store_narrowed<V>(a.dx + at + column, d);
    }
  }
}

// Starts `kernel` with as many blocks as the device holds at a time, and adds up what they leave.
template <typename T>
void walk_rows(const Op& op, const NormBackwardArgs& args, void (*kernel)(NormBackward<T>),
               int threads) {
  NormBackward<T> a(args);
  const int64_t blocks =
      std::min<int64_t>(kResident / threads * op.device().multiprocessors, a.rows);
  const bool wanted = args.dweight || args.dbias;
  const Workspace<float> partials(op, wanted ? blocks * 2 * a.columns : 0);
  if (wanted) a.partials = partials.data();
  launch(kernel, Grid(blocks), threads, 0, op, a);
  add_partials(
      op, a.partials, blocks, 2 * a.columns,
      {{args.dweight, 0, args.accumulate_weight}, {args.dbias, a.columns, args.accumulate_bias}});
}

void norm_backward(CudaBackend& backend, Stream& stream, std::string_view name,
                   const NormBackwardArgs& args) {
  const Op op(backend, stream, name, args);
  dispatch_device(args.x.dtype(), op.name(), [&]<typename T>(TypeTag<T>) {
    const int64_t columns = args.x.shape().last();
    const auto rows_with = [&]<int kThreads>() {
      walk_rows<T>(op, args, norm_backward_rows<T, kThreads>, kThreads);
    };
    if (!NormBackward<T>(args).aligned()) {
      walk_rows<T>(op, args, norm_backward_any<T, 1>, kAnyThreads);
    } else if (columns <= columns_of<T>(32, kPackets)) {
      rows_with.template operator()<32>();
    } else if (columns <= columns_of<T>(64, kPackets)) {
      rows_with.template operator()<64>();
    } else if (columns <= columns_of<T>(128, kPackets)) {
      rows_with.template operator()<128>();
    } else if (columns <= columns_of<T>(256, kPackets)) {
      rows_with.template operator()<256>();
    } else if (columns <= columns_of<T>(512, kPackets)) {
      rows_with.template operator()<512>();
    } else {
      walk_rows<T>(op, args, norm_backward_any<T, run_of<T>()>, kAnyThreads);
    }
  });
}

}  // namespace

template <>
void CudaBackend::compute(Stream& stream, const LayerNormBackwardArgs& args) {
  norm_backward(*this, stream, args.name(), args);
}

template <>
void CudaBackend::compute(Stream& stream, const RmsNormBackwardArgs& args) {
  norm_backward(*this, stream, args.name(), args);
}

}  // namespace fsdp::cuda
