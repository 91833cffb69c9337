// Dropout of activations: the mask is drawn again in backward, never stored.
#include "core/dropout_mask.h"
#include "core/layer_args.h"
#include "kernels/cuda/elements.h"

namespace fsdp::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kRun = 8;  // elements of a thread: two Philox blocks

// mapping: grid y is the sample, a thread takes eight elements of it
// bytes:   2 N elements
// in f32:  the scaling; the random words are integers
// source:  core/rng.h, DropoutKey
template <typename T, bool kAligned>
__global__ void __launch_bounds__(kThreads)
    drop_elements(DropoutMask<float> mask, const int64_t* samples, int64_t size, const T* x, T* y) {
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kRun;
  if (first >= size) return;
  const auto sample = static_cast<uint64_t>(samples[blockIdx.y]);
  const int64_t row = static_cast<int64_t>(blockIdx.y) * size;
  const Philox4x32 words[2] = {mask.words(sample, static_cast<uint64_t>(first) / 4),
                               mask.words(sample, static_cast<uint64_t>(first) / 4 + 1)};
  if (kAligned && first + kRun <= size) {
    float values[kRun];
    load_widened<kRun>(x + row + first, values);
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      values[i] = mask.keeps(words[i / 4][i % 4]) ? values[i] * mask.scale : 0;
    }
    store_narrowed<kRun>(y + row + first, values);
    return;
  }
#pragma unroll
  for (int i = 0; i < kRun; ++i) {
    if (first + i >= size) break;
    const float kept = widened<float>(x[row + first + i]) * mask.scale;
    y[row + first + i] = narrowed<T>(mask.keeps(words[i / 4][i % 4]) ? kept : 0.0f);
  }
}

}  // namespace

template <>
void CudaBackend::compute(Stream& stream, const DropoutArgs& args) {
  const Tensor &x = args.x, &y = args.y, &ids = *args.draw.samples;
  const Op op(*this, stream, args);
  const int64_t samples = ids.numel();
  if (samples == 0) return;
  const int64_t size = x.numel() / samples;
  dispatch_device(x.dtype(), op.name(), [&]<typename T>(TypeTag<T>) {
    const bool aligned = aligned_to_16({x.data(), y.data()}) && size % kRun == 0;
    launch(aligned ? drop_elements<T, true> : drop_elements<T, false>,
           Grid(blocks_for(size, kThreads * kRun), samples), kThreads, 0, op,
           DropoutMask<float>(args.draw), ids.data_as<int64_t>(), size, x.data_as<T>(),
           y.data_as<T>());
  });
}

}  // namespace fsdp::cuda
