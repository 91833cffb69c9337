// Softmax cross-entropy: loss and gradient of a row of logits by one block. The loss alone reads a
// row once. With the gradient a row is read once where it fits into what the block keeps of it, in
// shared memory and then in registers; of a longer row the rest is read twice, the second time from
// the cache of the device. A block of an H100 (227 KiB of shared memory) keeps 73,728 logits of f32
// and 147,456 of bf16; of an A100 (163 KiB) 57,344 and 114,688. Row losses are added in a fixed
// order, and no result depends on what is kept.
#include <algorithm>
#include <cfloat>

#include "core/layer_args.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/indices.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/workspace.h"

namespace fsdp::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kRun = 8;                    // logits that a thread takes at a time
constexpr size_t kStaticShared = 2 << 10;  // more than the reductions have and the driver adds

// Of a row's gradient: so many logits are kept in shared memory, and behind them so many runs of
// each thread in registers. Multiples of kStep, by which a thread goes: it takes the same logits in
// the same order whatever is kept.
constexpr int kStep = kThreads * kRun;
template <typename L>
constexpr int kRunsInRegisters = sizeof(L) == 2 ? 4 : 2;  // 16 registers of 64

template <typename L>
struct CrossEntropyRows {
  const L* logits;
  const int32_t* labels;
  float* losses;  // (rows)
  int64_t vocabulary;
  int64_t row_length;  // of logits and dlogits, in memory
  int in_shared;       // logits of a row, counted from its first run
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

// A run of kRun logits in registers, as it is in memory.
template <typename L>
struct KeptRun {
  static constexpr int kPacket = 16 / sizeof(L);
  uint4 packets[kRun / kPacket];

  __device__ __forceinline__ void load(const L* from) {
#pragma unroll
    for (int i = 0; i < kRun / kPacket; ++i) packets[i] = load_packet(from + i * kPacket);
  }
  // f(offset in the run, values of a packet)
  template <typename F>
  __device__ __forceinline__ void each(F f) const {
#pragma unroll
    for (int i = 0; i < kRun / kPacket; ++i) {
      float x[kPacket];
      unpack<L>(packets[i], x);
      f(i * kPacket, x);
    }
  }
};

// mapping: a block per row, the last row first (the product before has just written it); a thread
//          takes the same logits in both passes
// bytes:   N V logits and N V gradients; of rows longer than what is kept, the rest of the logits
//          twice
// in f32:  all arithmetic and sums
// source:  Milakov & Gimelshein 2018, "Online normalizer calculation for softmax"
template <typename L, typename T, bool kGradient>
__global__ void __launch_bounds__(kThreads, 1)  // two blocks would have 32 registers, and spill
    cross_entropy_rows(CrossEntropyRows<L> a, [[maybe_unused]] T* dlogits) {
  const int64_t row = gridDim.x - 1 - blockIdx.x;
  const int32_t label = a.labels[row];
  // Counted from the first run that has logits of the row.
  const int64_t first = row * a.row_length / kRun * kRun;
  const int begin = static_cast<int>(row * a.row_length - first);
  const int end = begin + static_cast<int>(a.vocabulary);
  const L* logits = a.logits + first;
  dlogits += kGradient ? first : 0;
  if (label < 0 || label >= a.vocabulary) {  // kIgnoreIndex; for others see indices.h
    if (threadIdx.x == 0) a.losses[row] = 0;
    if constexpr (kGradient) fill_zero_row(dlogits, begin, end, a.aligned);
    return;
  }
  const float at_label = widened<float>(logits[begin + label]);
  const auto each = [&](int from, int to, auto f) {
    each_run<kRun>(from, to, a.aligned, threadIdx.x, kThreads, f);
  };
  OnlineSum online;
  const auto take = [&]<int V>(int i) {
    float x[V];
    load_widened<V>(logits + i, x);
    online.take(x);
  };

  // Where shared memory ends and, with the gradient, registers do. Nothing is in registers of rows
  // that do not lie on 16 bytes, nor of the last run of a row unless it is whole.
  constexpr int kInRegisters = kRunsInRegisters<L>;
  [[maybe_unused]] const int shared_end = kGradient ? a.in_shared : end;
  [[maybe_unused]] const int kept_end = shared_end + kInRegisters * kStep;
  [[maybe_unused]] L* cache = kGradient ? dynamic_shared<L>() : nullptr;
  [[maybe_unused]] KeptRun<L> kept[kInRegisters];
  const auto own = [&](int k) {
    return shared_end + k * kStep + static_cast<int>(threadIdx.x) * kRun;
  };
  const auto whole = [&](int i) { return a.aligned && i + kRun <= end; };
  if constexpr (kGradient) {
    each(begin, min(end, shared_end), [&]<int V>(int i) {
      float x[V];
      load_widened<V>(logits + i, x);
      online.take(x);
      store_narrowed<V>(cache + i, x);
    });
#pragma unroll
    for (int k = 0; k < kInRegisters; ++k) {
      if (whole(own(k))) {
        kept[k].load(logits + own(k));
        float x[kRun];
        kept[k].each([&](int at, const auto& values) {
#pragma unroll
          for (int j = 0; j < KeptRun<L>::kPacket; ++j) x[at + j] = values[j];
        });
        online.take(x);
      } else {
        each_run<kRun>(own(k), min(end, own(k) + kRun), false, 0, 1, take);
      }
    }
    each(kept_end, end, take);
  } else {
    each(begin, end, take);
  }
  const float largest = block_reduce<kThreads>(online.largest, Maximum());
  const float total = block_reduce<kThreads>(online.sum * expf(online.largest - largest));
  if (threadIdx.x == 0) a.losses[row] = logf(total) + (largest - at_label);
  if constexpr (!kGradient) return;

  const float scale = a.loss_scale ? a.gradient_scale * *a.loss_scale : a.gradient_scale;
  const float factor = scale / total;
  // From the probability, not from the rounded product, so that 1 - p keeps its digits.
  const float at_label_gradient = (expf(at_label - largest) / total - 1) * scale;
  const auto store = [&]<int V>(int i, float(&x)[V]) {
#pragma unroll
    for (int j = 0; j < V; ++j) {
      x[j] = i + j == begin + label ? at_label_gradient : expf(x[j] - largest) * factor;
    }
    store_narrowed<V>(dlogits + i, x);
  };
  const auto again = [&]<int V>(int i) {
    float x[V];
    load_widened<V>(logits + i, x);
    store(i, x);
  };
  each(begin, min(end, shared_end), [&]<int V>(int i) {
    float x[V];
    load_widened<V>(cache + i, x);
    store(i, x);
  });
#pragma unroll
  for (int k = 0; k < kInRegisters; ++k) {
    if (whole(own(k))) {
      kept[k].each([&](int at, auto& values) { store(own(k) + at, values); });
    } else {
      each_run<kRun>(own(k), min(end, own(k) + kRun), false, 0, 1, again);
    }
  }
  each(kept_end, end, again);
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

template <typename L, typename T>
void run_rows(const Op& op, const CrossEntropyArgs& args, float* losses) {
  const int64_t rows = args.logits.shape().rows(), row_length = args.logits.shape().last();
  const int64_t vocabulary = args.columns();
  const void* gradients = args.dlogits ? args.dlogits->data() : nullptr;
  CrossEntropyRows<L> a = {
      .logits = args.logits.data_as<L>(),
      .labels = args.labels.data_as<int32_t>(),
      .losses = losses,
      .vocabulary = vocabulary,
      .row_length = row_length,
      .gradient_scale = static_cast<float>(args.gradient_scale),
      .loss_scale = args.loss_scale ? args.loss_scale->data_as<float>() : nullptr,
      .aligned = aligned_to_16({args.logits.data(), gradients})};
  if (!args.dlogits) {
    return launch(cross_entropy_rows<L, T, false>, Grid(rows), kThreads, 0, op, a, nullptr);
  }
  const auto room =
      static_cast<int64_t>((op.device().shared_per_block - kStaticShared) / sizeof(L));
  a.in_shared =
      static_cast<int>(std::min(room / kStep * kStep, blocks_for(vocabulary + kRun, kRun) * kRun));
  launch(cross_entropy_rows<L, T, true>, Grid(rows), kThreads,
         static_cast<size_t>(a.in_shared) * sizeof(L), op, a, args.dlogits->data_as<T>());
}

}  // namespace

template <>
void CudaBackend::compute(Stream& stream, const CrossEntropyArgs& args) {
  const Op op(*this, stream, args);
  const DType logits = args.logits.dtype(),
              gradient = args.dlogits ? args.dlogits->dtype() : logits;
  FSDP_CHECK(logits == DType::kF32 || logits == DType::kBF16,
             "[cross_entropy] dtype of logits: expected f32 or bf16 on a GPU, got {}",
             fsdp::name_of(logits));
  FSDP_CHECK(logits == DType::kF32 || gradient == DType::kBF16,
             "[cross_entropy] dtype of dlogits: expected bf16 beside logits of bf16, got {}",
             fsdp::name_of(gradient));
  const int64_t rows = args.logits.shape().rows(), vocabulary = args.columns();
  check_indices(op, args.labels, vocabulary, kIgnoreIndex, [=](int64_t row, int32_t label) {
    fail("[cross_entropy] label: expected in [0, {}) or {}, got {} in row {}", vocabulary,
         kIgnoreIndex, label, row);
  });
  const Workspace<float> losses(op, rows);
  if (logits == DType::kBF16) {
    run_rows<__nv_bfloat16, __nv_bfloat16>(op, args, losses.data());
  } else {
    dispatch_device(gradient, op.name(),
                    [&]<typename T>(TypeTag<T>) { run_rows<float, T>(op, args, losses.data()); });
  }
  launch(add_losses, Grid(rows > 0 ? 1 : 0), kThreads, 0, op, losses.data(), rows,
         args.loss_sum.data_as<float>());
}

}  // namespace fsdp::cuda
