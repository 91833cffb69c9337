// Layer norm and RMS norm, forward (with the residual add before it) and backward. One row at a
// time while it is in the nearest cache; statistics in the accumulation type.
// Gradients of weight and bias: partial sums of fixed blocks of rows, added in order.
#include <cmath>

#include "core/layer_args.h"
#include "kernels/cpu/column_sums.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/wide_loop.h"

namespace fsdp::cpu {
namespace {

constexpr int64_t kRowGrain = 8;

// ---- forward ----

template <typename T>
struct ForwardRows {
  const T* x;
  const T* residual;  // or null
  T* sum;
  const T* weight;
  const T* bias;  // or null
  T* y;
  Accumulate<T>* mean;  // null: RMS norm
  Accumulate<T>* rstd;
  int64_t rows, columns;
  Accumulate<T> epsilon;
};

template <typename T>
void add_row(const T* x, const T* residual, T* sum, int64_t n) {
  using A = Accumulate<T>;
#pragma GCC ivdep
  for (int64_t c = 0; c < n; ++c) sum[c] = T(A(x[c]) + A(residual[c]));
}

template <typename T>
Accumulate<T> mean_of(const T* x, int64_t n) {
  using A = Accumulate<T>;
  A total = 0;
#pragma omp simd reduction(+ : total)
  for (int64_t c = 0; c < n; ++c) total += A(x[c]);
  return total / A(n);
}

template <typename T>
Accumulate<T> mean_square(const T* x, Accumulate<T> center, int64_t n) {
  using A = Accumulate<T>;
  A total = 0;
#pragma omp simd reduction(+ : total)
  for (int64_t c = 0; c < n; ++c) total += (A(x[c]) - center) * (A(x[c]) - center);
  return total / A(n);
}

template <bool kBias, typename T, typename A>
void scale_row(const T* x, A mean, A rstd, const T* weight, const T* bias, T* y, int64_t n) {
#pragma GCC ivdep
  for (int64_t c = 0; c < n; ++c) {
    A value = (A(x[c]) - mean) * rstd * A(weight[c]);
    if constexpr (kBias) value += A(bias[c]);
    y[c] = T(value);
  }
}

template <typename T, typename A>
void scale_row_rms(const T* x, A rstd, const T* weight, T* y, int64_t n) {
#pragma GCC ivdep
  for (int64_t c = 0; c < n; ++c) y[c] = T(A(T(A(x[c]) * rstd)) * A(weight[c]));
}

template <typename T>
void forward_rows(ForwardRows<T> a, int64_t begin, int64_t end) {
  using A = Accumulate<T>;
  for (int64_t row = begin; row < end; ++row) {
    const int64_t at = row * a.columns;
    const T* x = a.x + at;
    if (a.residual) {
      add_row(x, a.residual + at, a.sum + at, a.columns);
      x = a.sum + at;
    }
    const A mean = a.mean ? mean_of(x, a.columns) : A(0);
    const A rstd = A(1) / std::sqrt(mean_square(x, mean, a.columns) + a.epsilon);
    a.rstd[row] = rstd;
    if (!a.mean) {
      scale_row_rms(x, rstd, a.weight, a.y + at, a.columns);
      continue;
    }
    a.mean[row] = mean;
    if (a.bias) {
      scale_row<true>(x, mean, rstd, a.weight, a.bias, a.y + at, a.columns);
    } else {
      scale_row<false>(x, mean, rstd, a.weight, a.bias, a.y + at, a.columns);
    }
  }
}

template <typename T>
std::function<void(Worker&)> forward_task(const NormForwardArgs& args) {
  const ForwardRows<T> rows = {
      .x = args.x.data_as<T>(),
      .residual = data_or_null<T>(args.residual),
      .sum = data_or_null<T>(args.sum),
      .weight = args.weight.data_as<T>(),
      .bias = data_or_null<T>(args.bias),
      .y = args.y.data_as<T>(),
      .mean = data_or_null<Accumulate<T>>(args.mean),
      .rstd = args.rstd.data_as<Accumulate<T>>(),
      .rows = args.x.shape().rows(),
      .columns = args.x.shape().last(),
      .epsilon = static_cast<Accumulate<T>>(args.epsilon),
  };
  return [rows](Worker& worker) {
    worker.team.parallel_for(rows.rows, kRowGrain, [&](int64_t begin, int64_t end) {
      wide_loop([&](auto) { forward_rows(rows, begin, end); });
    });
  };
}

// ---- backward ----

template <typename T>
struct BackwardRows {
  const T* dy;
  const T* dsum;  // or null
  const T* x;
  const T* weight;
  const Accumulate<T>* mean;  // null: RMS norm
  const Accumulate<T>* rstd;
  T* dx;
  int64_t rows, columns;
};

// dx = rstd * (g - mean(g) - h * mean(g * h)) + dsum with g = dy * weight, h = (x - mean) * rstd;
// RMS norm without the mean(g). dweight += dy * h, dbias += dy.
template <bool kMean, bool kSum, typename T, typename A>
void backward_row(const BackwardRows<T>& a, int64_t row, A* dweight, A* dbias) {
  const int64_t n = a.columns;
  const T *dy = a.dy + row * n, *x = a.x + row * n, *weight = a.weight;
  [[maybe_unused]] const T* dsum = kSum ? a.dsum + row * n : nullptr;
  T* dx = a.dx + row * n;
  const A mean = kMean ? a.mean[row] : A(0), rstd = a.rstd[row];
  A mean_g = 0, mean_gh = 0;
#pragma omp simd reduction(+ : mean_g, mean_gh)
  for (int64_t c = 0; c < n; ++c) {
    const A g = A(dy[c]) * A(weight[c]);
    if constexpr (kMean) mean_g += g;
    mean_gh += g * ((A(x[c]) - mean) * rstd);
  }
  mean_g /= A(n);
  mean_gh /= A(n);
#pragma GCC ivdep
  for (int64_t c = 0; c < n; ++c) {
    const A d = A(dy[c]), h = (A(x[c]) - mean) * rstd;
    A value = (d * A(weight[c]) - mean_g - h * mean_gh) * rstd;
    if constexpr (kSum) value += A(dsum[c]);
    dx[c] = T(value);
    dweight[c] += d * h;
    if constexpr (kMean) dbias[c] += d;
  }
}

template <bool kMean, typename T>
void backward_rows(BackwardRows<T> a, int64_t begin, int64_t end, Accumulate<T>* dweight,
                   Accumulate<T>* dbias) {
  for (int64_t row = begin; row < end; ++row) {
    if (a.dsum) {
      backward_row<kMean, true>(a, row, dweight, dbias);
    } else {
      backward_row<kMean, false>(a, row, dweight, dbias);
    }
  }
}

template <typename T>
std::function<void(Worker&)> backward_task(const NormBackwardArgs& args) {
  using A = Accumulate<T>;
  const BackwardRows<T> rows = {
      .dy = args.dy.data_as<T>(),
      .dsum = data_or_null<T>(args.dsum),
      .x = args.x.data_as<T>(),
      .weight = args.weight.data_as<T>(),
      .mean = data_or_null<A>(args.mean),
      .rstd = args.rstd.data_as<A>(),
      .dx = args.dx.data_as<T>(),
      .rows = args.x.shape().rows(),
      .columns = args.x.shape().last(),
  };
  const ColumnTarget dweight(args.dweight, args.accumulate_weight);
  const ColumnTarget dbias(args.dbias, args.accumulate_bias);
  return [rows, dweight, dbias](Worker& worker) {
    const auto [block_rows, blocks] = RowBlocks(rows.rows, kLeastNormRows);
    const int64_t stride = 2 * rows.columns;  // of a block: dweight, then dbias
    const size_t bytes = static_cast<size_t>(blocks * stride) * sizeof(A);
    A* partials = static_cast<A*>(worker.team.scratch(0, bytes));
    worker.team.run(blocks, [&](int64_t block, int) {
      A* partial = partials + block * stride;
      std::fill_n(partial, stride, A(0));
      const int64_t begin = block * block_rows, end = std::min(rows.rows, begin + block_rows);
      wide_loop([&](auto) {
        if (rows.mean) {
          backward_rows<true>(rows, begin, end, partial, partial + rows.columns);
        } else {
          backward_rows<false>(rows, begin, end, partial, partial + rows.columns);
        }
      });
    });
    dweight.add_blocks(partials, blocks, stride, rows.columns, worker.team);
    dbias.add_blocks(partials + rows.columns, blocks, stride, rows.columns, worker.team);
  };
}

std::function<void(Worker&)> forward(const NormForwardArgs& args, std::string_view op) {
  return dispatch_floating(args.x.dtype(), op,
                           [&]<typename T>(TypeTag<T>) { return forward_task<T>(args); });
}

std::function<void(Worker&)> backward(const NormBackwardArgs& args, std::string_view op) {
  return dispatch_floating(args.x.dtype(), op,
                           [&]<typename T>(TypeTag<T>) { return backward_task<T>(args); });
}

}  // namespace

template <>
void CpuBackend::compute(Stream& stream, const LayerNormForwardArgs& args) {
  enqueue(stream, args.name(), 0, forward(args, args.name()));
}

template <>
void CpuBackend::compute(Stream& stream, const LayerNormBackwardArgs& args) {
  plan_scratch(stream, scratch_of(args));
  enqueue(stream, args.name(), 0, backward(args, args.name()));
}

template <>
void CpuBackend::compute(Stream& stream, const RmsNormForwardArgs& args) {
  enqueue(stream, args.name(), 0, forward(args, args.name()));
}

template <>
void CpuBackend::compute(Stream& stream, const RmsNormBackwardArgs& args) {
  plan_scratch(stream, scratch_of(args));
  enqueue(stream, args.name(), 0, backward(args, args.name()));
}

}  // namespace fsdp::cpu
