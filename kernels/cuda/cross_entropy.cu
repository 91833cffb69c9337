// Softmax cross-entropy: loss and gradient of a row of logits by one block, which reads the row
// once where it fits into shared memory. Row losses are added in a fixed order.
#include <cfloat>

#include "kernels/cuda/elements.h"
#include "kernels/cuda/indices.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/workspace.h"

namespace fsdp::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kRun = 8;                    // logits that a thread takes at a time
constexpr size_t kStaticShared = 2 << 10;  // more than the reductions have and the driver adds

struct CrossEntropyRows {
  const float* logits;
  const int32_t* labels;
  float* losses;  // (rows)
  int64_t vocabulary;
  int64_t row_length;  // of logits and dlogits, in memory
  float gradient_scale;
  const float* loss_scale;  // or null
  bool aligned;
};

// A sum of exp(x - largest) as it grows.
struct OnlineSum {
  float largest = -FLT_MAX;  // not infinite: the difference to -infinity is a number
  float sum = 0;

  template <int V>
  __device__ __forceinline__ void take(const float (&x)[V]) {
    float next = largest;
#pragma unroll
    for (int j = 0; j < V; ++j) next = fmaxf(next, x[j]);
    sum *= expf(largest - next);
#pragma unroll
    for (int j = 0; j < V; ++j) sum += expf(x[j] - next);
    largest = next;
  }
};

template <typename T>
__device__ void fill_zero_row(T* row_of_all, int64_t begin, int64_t end, bool aligned) {
  each_run<kRun>(begin, end, aligned, threadIdx.x, kThreads, [&]<int V>(int64_t i) {
    const float zeros[V] = {};
    store_narrowed<V>(row_of_all + i, zeros);
  });
}

// mapping: a block per row, the last row first (the product before has just written it); a thread
//          takes the same logits in both passes
// bytes:   N V logits and N V gradients; where kCached is false, the logits twice
// in f32:  all arithmetic and sums
// source:  Milakov & Gimelshein 2018, "Online normalizer calculation for softmax"
template <typename T, bool kCached>
__global__ void __launch_bounds__(kThreads, kCached ? 1 : 2)  // the cache leaves room for one
    cross_entropy_rows(CrossEntropyRows a, [[maybe_unused]] T* dlogits) {
  const int64_t row = gridDim.x - 1 - blockIdx.x;
  const int64_t begin = row * a.row_length, end = begin + a.vocabulary;
  const int32_t label = a.labels[row];
  if (label < 0 || label >= a.vocabulary) {  // kIgnoreIndex; for others see indices.h
    if (threadIdx.x == 0) a.losses[row] = 0;
    if (dlogits) fill_zero_row(dlogits, begin, end, a.aligned);
    return;
  }
  const float at_label = a.logits[begin + label];
  float* cache = kCached ? dynamic_shared<float>() : nullptr;
  const int64_t cache_begin = begin / kRun * kRun;
  OnlineSum online;
  each_run<kRun>(begin, end, a.aligned, threadIdx.x, kThreads, [&]<int V>(int64_t i) {
    float x[V];
    load_widened<V>(a.logits + i, x);
    online.take(x);
    if constexpr (kCached) store_narrowed<V>(cache + (i - cache_begin), x);
  });
  const float largest = block_reduce<kThreads>(online.largest, Maximum());
  const float total = block_reduce<kThreads>(online.sum * expf(online.largest - largest));
  if (threadIdx.x == 0) a.losses[row] = logf(total) + (largest - at_label);
  if (!dlogits) return;
  const float scale = a.loss_scale ? a.gradient_scale * *a.loss_scale : a.gradient_scale;
  const float factor = scale / total;
  // From the probability, not from the rounded product, so that 1 - p keeps its digits.
  const float at_label_gradient = (expf(at_label - largest) / total - 1) * scale;
  each_run<kRun>(begin, end, a.aligned, threadIdx.x, kThreads, [&]<int V>(int64_t i) {
    float x[V];
    if constexpr (kCached) {
      load_widened<V>(cache + (i - cache_begin), x);
    } else {
      load_widened<V>(a.logits + i, x);
    }
#pragma unroll
    for (int j = 0; j < V; ++j) {
      x[j] = i + j == begin + label ? at_label_gradient : expf(x[j] - largest) * factor;
    }
    store_narrowed<V>(dlogits + i, x);
  });
}

// mapping: one block
// bytes:   4 N
// in f64:  the sum
// source:  none
__global__ void __launch_bounds__(kThreads)
    add_losses(const float* losses, int64_t rows, float* loss_sum) {
  double total = 0;
  for (int64_t row = threadIdx.x; row < rows; row += kThreads) total += losses[row];
  total = block_reduce<kThreads>(total);
  if (threadIdx.x == 0) *loss_sum = static_cast<float>(*loss_sum + total);
}

}  // namespace

void CudaBackend::compute(Stream& stream, const CrossEntropyArgs& args) {
  const Op op(*this, stream, args);
  FSDP_CHECK(args.logits.dtype() == DType::kF32,
             "[cross_entropy] dtype of logits: expected f32 on a GPU, got {}",
             fsdp::name_of(args.logits.dtype()));
  const int64_t rows = args.logits.shape().rows(), row_length = args.logits.shape().last();
  const int64_t vocabulary = args.vocabulary > 0 ? args.vocabulary : row_length;
  check_indices(op, args.labels, vocabulary, kIgnoreIndex, [=](int64_t row, int32_t label) {
    fail("[cross_entropy] label: expected in [0, {}) or {}, got {} in row {}", vocabulary,
         kIgnoreIndex, label, row);
  });
  const Workspace<float> losses(op, rows);
  const void* gradients = args.dlogits ? args.dlogits->data() : nullptr;
  const CrossEntropyRows a = {
      .logits = args.logits.data_as<float>(),
      .labels = args.labels.data_as<int32_t>(),
      .losses = losses.data(),
      .vocabulary = vocabulary,
      .row_length = row_length,
      .gradient_scale = static_cast<float>(args.gradient_scale),
      .loss_scale = args.loss_scale ? args.loss_scale->data_as<float>() : nullptr,
      .aligned = aligned_to_16({args.logits.data(), gradients})};
  const DType dtype = args.dlogits ? args.dlogits->dtype() : DType::kF32;
  dispatch_device(dtype, op.name(), [&]<typename T>(TypeTag<T>) {
    T* dlogits = args.dlogits ? args.dlogits->data_as<T>() : nullptr;
    const size_t cache = static_cast<size_t>(vocabulary + 2 * kRun) * sizeof(float);
    const bool fits = dlogits && cache + kStaticShared <= device_.shared_per_block;
    launch(fits ? cross_entropy_rows<T, true> : cross_entropy_rows<T, false>, Grid(rows), kThreads,
           fits ? cache : 0, op, a, dlogits);
  });
  launch(add_losses, Grid(rows > 0 ? 1 : 0), kThreads, 0, op, losses.data(), rows,
         args.loss_sum.data_as<float>());
}

}  // namespace fsdp::cuda
