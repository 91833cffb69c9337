// Softmax cross-entropy: loss and gradient of a row of logits. Memory is read once for the loss,
// and once more for the gradient, while the row is in the second-level cache (a row of 50257 has
// 196 KiB in f32, 98 KiB in bf16). Row losses are added in order.
#include <cmath>
#include <limits>

#include "core/layer_args.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/cpu/wide_loop.h"

namespace fsdp::cpu {
namespace {

constexpr int64_t kRun = 512;        // elements of a conversion buffer, terms of an f32 sum
constexpr int64_t kMostRuns = 1024;  // of a row whose exponentials are kept

template <typename A>
A max_of(const A* x, int64_t n) {
  A largest = -std::numeric_limits<A>::infinity();
#pragma omp simd reduction(max : largest)
  for (int64_t i = 0; i < n; ++i) largest = x[i] > largest ? x[i] : largest;
  return largest;
}

template <typename A>
A sum_exp(const A* x, A shift, int64_t n) {
  A total = 0;
#pragma omp simd reduction(+ : total)
  for (int64_t i = 0; i < n; ++i) total += simd_exp(x[i] - shift);
  return total;
}

// y = exp(x - shift); returns the sum. y may be x.
template <typename A>
A store_exp(const A* x, A shift, A* y, int64_t n) {
  A total = 0;
#pragma omp simd reduction(+ : total)
  for (int64_t i = 0; i < n; ++i) {
    const A e = simd_exp(x[i] - shift);
    y[i] = e;
    total += e;
  }
  return total;
}

template <typename A>
void scale_run(A* x, A factor, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) x[i] *= factor;
}

// Loops that mix widths take half as long again: hence the buffers.
template <typename A, typename L>
const A* widened(const L* x, A* buffer, int64_t n) {
  if constexpr (std::is_same_v<A, L>) {
    return x;
  } else {
    convert(x, buffer, n);
    return buffer;
  }
}

// A sum of exp(x - largest) as it grows, run by run (Milakov & Gimelshein 2018): memory is read
// once, and a run is in the first-level cache when its largest element is known.
template <typename A>
struct OnlineSum {
  A largest = std::numeric_limits<A>::lowest();  // not infinite: the difference to -infinity is
  double sum = 0;                                // a number

  void raise(A largest_of_run) {
    if (!(largest_of_run > largest)) return;
    sum *= std::exp(double(largest) - double(largest_of_run));
    largest = largest_of_run;
  }
};

template <typename A, typename L>
OnlineSum<A> sum_row(const L* x, int64_t n) {
  OnlineSum<A> online;
  A buffer[kRun];
  for (int64_t i = 0; i < n; i += kRun) {
    const int64_t count = std::min(kRun, n - i);
    const A* run = widened(x + i, buffer, count);
    online.raise(max_of(run, count));
    online.sum += double(sum_exp(run, online.largest, count));
  }
  return online;
}

// dlogits = exp(logits - largest) * scale / sum. The exponentials are computed again; in place too.
template <typename A, typename L, typename Out>
OnlineSum<A> row_again(const L* logits, Out* dlogits, A scale, int64_t n) {
  const OnlineSum<A> online = sum_row<A>(logits, n);
  const A factor = scale / A(online.sum);
  A buffer[kRun], gradients[kRun];
  for (int64_t i = 0; i < n; i += kRun) {
    const int64_t count = std::min(kRun, n - i);
    const A* run = widened(logits + i, buffer, count);
    for (int64_t j = 0; j < count; ++j) gradients[j] = simd_exp(run[j] - online.largest) * factor;
    convert(gradients, dlogits + i, count);
  }
  return online;
}

// The same where dlogits can keep the exponentials, each run's by the largest element so far.
template <typename A>
OnlineSum<A> row_kept(const A* logits, A* dlogits, A scale, int64_t n) {
  OnlineSum<A> online;
  A shifts[kMostRuns];
  const int64_t length = std::max(kRun, (n + kMostRuns - 1) / kMostRuns);
  for (int64_t i = 0; i < n; i += length) {
    const int64_t count = std::min(length, n - i);
    online.raise(max_of(logits + i, count));
    shifts[i / length] = online.largest;
    online.sum += double(store_exp(logits + i, online.largest, dlogits + i, count));
  }
  const A factor = scale / A(online.sum);
  for (int64_t i = 0; i < n; i += length) {
    const A of_run = simd_exp(shifts[i / length] - online.largest) * factor;
    scale_run(dlogits + i, of_run, std::min(length, n - i));
  }
  return online;
}

// One labelled row; dlogits null: loss only. Returns the loss.
template <typename A, typename L, typename Out>
A cross_entropy_row(const L* logits, int32_t label, Out* dlogits, A scale, int64_t n) {
  const A at_label = logits[label];
  OnlineSum<A> online;
  if (!dlogits) {
    online = sum_row<A>(logits, n);
  } else if constexpr (std::is_same_v<A, L> && std::is_same_v<A, Out>) {
    online = row_kept(logits, dlogits, scale, n);
  } else {
    online = row_again(logits, dlogits, scale, n);
  }
  const A total = A(online.sum);
  // From the probability, not from the rounded product, so that 1 - p keeps its digits.
  if (dlogits) {
    dlogits[label] = Out((simd_exp(at_label - online.largest) / total - A(1)) * scale);
  }
  return std::log(total) + (online.largest - at_label);
}

void check_labels(const int32_t* labels, int64_t rows, int64_t vocabulary) {
  for (int64_t row = 0; row < rows; ++row) {
    FSDP_CHECK(labels[row] == kIgnoreIndex || (labels[row] >= 0 && labels[row] < vocabulary),
               "[cross_entropy] label: expected in [0, {}) or {}, got {} in row {}", vocabulary,
               kIgnoreIndex, labels[row], row);
  }
}

template <typename A, typename L, typename Out>
struct CrossEntropyRows {
  const L* logits;
  const int32_t* labels;
  A* loss_sum;
  Out* dlogits;  // or null
  int64_t rows, vocabulary;
  int64_t row_length;  // of logits and dlogits, in memory
  A gradient_scale;
  const float* loss_scale;  // or null

  void operator()(Worker& worker) const {
    check_labels(labels, rows, vocabulary);
    const A factor = loss_scale ? gradient_scale * static_cast<A>(*loss_scale) : gradient_scale;
    A* losses = static_cast<A*>(worker.team.scratch(0, static_cast<size_t>(rows) * sizeof(A)));
    worker.team.run(rows, [&](int64_t row, int) {
      Out* gradient = dlogits ? dlogits + row * row_length : nullptr;
      if (labels[row] == kIgnoreIndex) {
        losses[row] = 0;
        if (gradient) std::fill_n(gradient, vocabulary, Out{});
        return;
      }
      const L* x = logits + row * row_length;
      wide_loop([&](auto) {
        losses[row] = cross_entropy_row(x, labels[row], gradient, factor, vocabulary);
      });
    });
    double total = 0;
    for (int64_t row = 0; row < rows; ++row) total += double(losses[row]);
    *loss_sum = A(double(*loss_sum) + total);
  }
};

template <typename L, typename Out, typename A = Accumulate<L>>
CrossEntropyRows<A, L, Out> rows_of(const CrossEntropyArgs& args) {
  const int64_t row_length = args.logits.shape().last();
  return {.logits = args.logits.data_as<L>(),
          .labels = args.labels.data_as<int32_t>(),
          .loss_sum = args.loss_sum.data_as<A>(),
          .dlogits = data_or_null<Out>(args.dlogits),
          .rows = args.logits.shape().rows(),
          .vocabulary = args.vocabulary > 0 ? args.vocabulary : row_length,
          .row_length = row_length,
          .gradient_scale = static_cast<A>(args.gradient_scale),
          .loss_scale = data_or_null<float>(args.loss_scale)};
}

}  // namespace

template <>
void CpuBackend::compute(Stream& stream, const CrossEntropyArgs& args) {
  constexpr std::string_view kName = "cross_entropy";
  plan_scratch(stream, scratch_of(args));
  const DType gradient = args.dlogits ? args.dlogits->dtype() : args.logits.dtype();
  if (args.logits.dtype() == DType::kBF16) {
    FSDP_CHECK(gradient == DType::kBF16,
               "[cross_entropy] dtype of dlogits: expected bf16 beside logits of bf16, got {}",
               name_of(gradient));
    return enqueue(stream, kName, 0, rows_of<BFloat16, BFloat16>(args));
  }
  dispatch_accumulation(args.logits.dtype(), kName, [&]<typename A>(TypeTag<A>) {
    dispatch_floating(gradient, kName, [&]<typename Out>(TypeTag<Out>) {
      enqueue(stream, kName, 0, rows_of<A, Out>(args));
    });
  });
}

}  // namespace fsdp::cpu
