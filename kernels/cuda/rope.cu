// Rotary position embedding, in place; half-split pairs (channel i with channel i + half).
#include "core/layer_args.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/reduce.h"

namespace fsdp::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarpSize;

template <typename T>
struct RopeRows {
  T* x;  // the first head of the first row
  const float* cos;
  const float* sin;
  int64_t rows, length, row_width, head_stride, first_position;  // rows = B * T
  int heads, half;
  float sign;  // of the angle
};

// mapping: a warp per row, V pairs a lane
// bytes:   2 N heads * 2 half elements; cosines and sines come from a cache
// in f32:  the rotation
// source:  Su et al. 2021, "RoFormer"; pairs as Hugging Face stores Llama
template <typename T, int V>
__global__ void __launch_bounds__(kThreads) rotate_rows(RopeRows<T> a) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarpSize;
  if (row >= a.rows) return;
  const int64_t position = row % a.length + a.first_position;
  const float *row_cos = a.cos + position * a.half, *row_sin = a.sin + position * a.half;
  const int runs = a.half / V;  // of a head
  for (int i = threadIdx.x % kWarpSize; i < a.heads * runs; i += kWarpSize) {
    const int head = i / runs, channel = (i - head * runs) * V;
    T* x = a.x + row * a.row_width + head * a.head_stride + channel;
    float low[V], high[V], cosine[V], sine[V];
    load_widened<V>(x, low);
    load_widened<V>(x + a.half, high);
    load_widened<V>(row_cos + channel, cosine);
    load_widened<V>(row_sin + channel, sine);
#pragma unroll
    for (int j = 0; j < V; ++j) {
      const float l = low[j], h = high[j], s = a.sign * sine[j];
      low[j] = l * cosine[j] - h * s;
      high[j] = h * cosine[j] + l * s;
    }
    store_narrowed<V>(x, low);
    store_narrowed<V>(x + a.half, high);
  }
}

}  // namespace

template <>
void CudaBackend::compute(Stream& stream, const RopeArgs& args) {
  const HeadView& view = args.x;
  const Op op(*this, stream, args);
  const Shape& shape = view.tensor->shape();
  dispatch_device(view.tensor->dtype(), op.name(), [&]<typename T>(TypeTag<T>) {
    const RopeRows<T> rows = {.x = view.tensor->data_as<T>() + view.offset,
                              .cos = args.cos.data_as<float>(),
                              .sin = args.sin.data_as<float>(),
                              .rows = shape[0] * shape[1],
                              .length = shape[1],
                              .row_width = shape[2],
                              .head_stride = view.head_stride,
                              .first_position = args.first_position,
                              .heads = static_cast<int>(view.heads),
                              .half = static_cast<int>(args.cos.shape().last()),
                              .sign = args.inverse ? -1.0f : 1.0f};
    constexpr int kRun = run_of<T>();
    const bool aligned = aligned_to_16({rows.x, rows.cos, rows.sin}) && rows.half % kRun == 0 &&
                         rows.head_stride % kRun == 0 && rows.row_width % kRun == 0;
    launch(aligned ? rotate_rows<T, kRun> : rotate_rows<T, 1>, Grid(blocks_for(rows.rows, kWarps)),
           kThreads, 0, op, rows);
  });
}

}  // namespace fsdp::cuda
