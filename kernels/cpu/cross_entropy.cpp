// Softmax cross-entropy: loss and gradient of a row of logits in one visit, while the row is in the
// second-level cache. Row losses are added in order.
#include <cmath>
#include <limits>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/cpu/wide_loop.h"

namespace fsdp::cpu {
namespace {

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

constexpr int64_t kRun = 512;  // elements of a conversion buffer, terms of an f32 sum

// Loops that mix widths take half as long again: hence the buffer.
template <typename A, typename Out>
void store_scaled_exp(const A* x, A shift, A factor, Out* y, int64_t n) {
  A run[kRun];
  for (int64_t i = 0; i < n; i += kRun) {
    const int64_t count = std::min(kRun, n - i);
    for (int64_t j = 0; j < count; ++j) run[j] = simd_exp(x[i + j] - shift) * factor;
    convert(run, y + i, count);
  }
}

// f(begin, count) over runs of a row, added in double.
template <typename F>
double sum_runs(int64_t n, F&& f) {
  double total = 0;
  for (int64_t i = 0; i < n; i += kRun) total += double(f(i, std::min(kRun, n - i)));
  return total;
}

// One labelled row; dlogits null: loss only. Returns the loss.
template <typename A, typename Out>
A cross_entropy_row(const A* logits, int32_t label, Out* dlogits, A gradient_scale, int64_t n) {
  const A at_label = logits[label];
  const A largest = max_of(logits, n);
  const A total = A(sum_runs(n, [&](int64_t i, int64_t count) {
    if constexpr (std::is_same_v<A, Out>) {
      if (dlogits) return store_exp(logits + i, largest, dlogits + i, count);
    }
    return sum_exp(logits + i, largest, count);
  }));
  const A loss = std::log(total) + (largest - at_label);
  if (!dlogits) return loss;
  // From the probability, not from the rounded product, so that 1 - p keeps its digits.
  const A probability = simd_exp(at_label - largest) / total;
  if constexpr (std::is_same_v<A, Out>) {
    scale_run(dlogits, gradient_scale / total, n);
  } else {
    store_scaled_exp(logits, largest, gradient_scale / total, dlogits, n);
  }
  dlogits[label] = Out((probability - A(1)) * gradient_scale);
  return loss;
}

void check_labels(const int32_t* labels, int64_t rows, int64_t vocabulary) {
  for (int64_t row = 0; row < rows; ++row) {
    FSDP_CHECK(labels[row] == kIgnoreIndex || (labels[row] >= 0 && labels[row] < vocabulary),
               "[cross_entropy] label: expected in [0, {}) or {}, got {} in row {}", vocabulary,
               kIgnoreIndex, labels[row], row);
  }
}

template <typename A, typename Out>
struct CrossEntropyRows {
  const A* logits;
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
      const A* x = logits + row * row_length;
      wide_loop([&](auto) {
        losses[row] = cross_entropy_row(x, labels[row], gradient, factor, vocabulary);
      });
    });
    double total = 0;
    for (int64_t row = 0; row < rows; ++row) total += double(losses[row]);
    *loss_sum = A(double(*loss_sum) + total);
  }
};

}  // namespace

void CpuBackend::compute(Stream& stream, const CrossEntropyArgs& args) {
  constexpr std::string_view kName = "cross_entropy";
  plan_scratch(stream, scratch_of(args));
  const int64_t row_length = args.logits.shape().last();
  const DType gradient = args.dlogits ? args.dlogits->dtype() : args.logits.dtype();
  dispatch_accumulation(args.logits.dtype(), kName, [&]<typename A>(TypeTag<A>) {
    dispatch_floating(gradient, kName, [&]<typename Out>(TypeTag<Out>) {
      const CrossEntropyRows<A, Out> rows = {
          .logits = args.logits.data_as<A>(),
          .labels = args.labels.data_as<int32_t>(),
          .loss_sum = args.loss_sum.data_as<A>(),
          .dlogits = data_or_null<Out>(args.dlogits),
          .rows = args.logits.shape().rows(),
          .vocabulary = args.vocabulary > 0 ? args.vocabulary : row_length,
          .row_length = row_length,
          .gradient_scale = static_cast<A>(args.gradient_scale),
          .loss_scale = data_or_null<float>(args.loss_scale),
      };
      enqueue(stream, kName, 0, rows);
    });
  });
}

}  // namespace fsdp::cpu
