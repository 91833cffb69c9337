// Operands and products of flash-style attention: tiles that stay in cache, in the accumulation
// type A (float or double). Softmax and masks: attention_softmax.h.
//
// [Note: lanes and panels] A tile of scores is stored transposed, (keys, 32): its vectors run over
// 32 queries, so that the softmax needs no sum across a vector. Every other operand is cut into
// panels of 32 columns, (panels, rows, 32), padded with zeros. So each product is
// c (rows, 32) += a b with all strides known at compile time, which is what lets GCC turn plain
// loops into a register tile at the machine's full vector width.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "kernels/cpu/attention_scratch.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/wide_loop.h"

namespace fsdp::cpu {

// ---- products ----

// One register tile: sizeof...(I) rows, two vectors of kVector lanes wide. The loop over lanes is
// the one that is vectorised: each element of low and high becomes a register.
template <int kVector, int kRowStride, int kStepStride, typename A, size_t... I>
inline void multiply_tile(std::index_sequence<I...>, const A* a, const A* b, A* c, int64_t steps) {
#pragma omp simd
  for (int lane = 0; lane < kVector; ++lane) {
    A low[] = {c[I * kLanes + lane]...};
    A high[] = {c[I * kLanes + kVector + lane]...};
    int64_t k = 0;
    do {  // not `for`: a loop that may not run at all would not be vectorised around
      const A x = b[k * kLanes + lane], y = b[k * kLanes + kVector + lane];
      ((low[I] += a[I * kRowStride + k * kStepStride] * x,
        high[I] += a[I * kRowStride + k * kStepStride] * y),
       ...);
    } while (++k < steps);
    ((c[I * kLanes + lane] = low[I], c[I * kLanes + kVector + lane] = high[I]), ...);
  }
}

template <typename Vectors, int kRows, int kRowStride, int kStepStride, typename A>
inline void multiply_stripe(const A* a, const A* b, A* c, int64_t steps) {
  constexpr int kVector = Vectors::kBytes / sizeof(A);
  for (int lane = 0; lane < kLanes; lane += 2 * kVector) {
    multiply_tile<kVector, kRowStride, kStepStride>(std::make_index_sequence<kRows>{}, a, b + lane,
                                                    c + lane, steps);
  }
}

// c (rows, 32) += a b with b (steps, 32), a(row, step) = a[row * kRowStride + step * kStepStride];
// steps > 0.
template <int kRowStride, int kStepStride, typename A>
void multiply_strided(const A* a, const A* b, A* c, int64_t rows, int64_t steps) {
  wide_loop([=]<typename Vectors>(Vectors) {
    const auto stripe = [&]<int kRows>(std::integral_constant<int, kRows>, int64_t row) {
      multiply_stripe<Vectors, kRows, kRowStride, kStepStride>(a + row * kRowStride, b,
                                                               c + row * kLanes, steps);
      return row + kRows;
    };
    int64_t row = 0;
    while (row + Vectors::kTileRows <= rows) {
      row = stripe(std::integral_constant<int, Vectors::kTileRows>{}, row);
    }
    if (row + 4 <= rows) row = stripe(std::integral_constant<int, 4>{}, row);
    if (row + 2 <= rows) row = stripe(std::integral_constant<int, 2>{}, row);
    if (row < rows) stripe(std::integral_constant<int, 1>{}, row);
  });
}

// a (rows, 32).
template <typename A>
void multiply_rows(const A* a, const A* b, A* c, int64_t rows, int64_t steps) {
  multiply_strided<kLanes, 1>(a, b, c, rows, steps);
}

// a transposed, (steps, 32).
template <typename A>
void multiply_columns(const A* a, const A* b, A* c, int64_t rows, int64_t steps) {
  multiply_strided<1, kLanes>(a, b, c, rows, steps);
}

// ---- loading and storing ----

// A matrix as panels: row r, column c is at (c / 32 * capacity + r) * 32 + c % 32.
template <typename A>
struct Panels {
  A* data;
  int64_t columns;
  int64_t capacity;  // rows

  int64_t count() const { return panels_of(columns); }
  int64_t size() const { return count() * capacity * kLanes; }
  int64_t width(int64_t panel) const { return std::min(kLanes, columns - panel * kLanes); }
  A* row(int64_t panel, int64_t row) const { return data + (panel * capacity + row) * kLanes; }
};

// Rows of a head are thousands of bytes apart, which the machine's own prefetching does not follow.
constexpr int64_t kRowsAhead = 8;

template <int kWrite, typename T>
inline void prefetch_lanes(const T* row) {
  constexpr int64_t kLine = 64 / sizeof(T);
  for (int64_t c = 0; c < kLanes; c += kLine) __builtin_prefetch(row + c, kWrite);
}

// The width is constant where it can be: the row is then a few vectors, not a call of memcpy.
template <typename T>
inline void load_row(const T* source, int64_t width, Accumulate<T> factor, Accumulate<T>* values) {
  if (width == kLanes) {
    convert(source, values, kLanes);
  } else {
    convert(source, values, width);
    std::fill(values + width, values + kLanes, Accumulate<T>(0));
  }
  for (int c = 0; c < kLanes; ++c) values[c] *= factor;
}

template <typename T>
inline void store_row(const Accumulate<T>* values, int64_t width, Accumulate<T> factor, T* target) {
  Accumulate<T> scaled[kLanes];
  for (int c = 0; c < kLanes; ++c) scaled[c] = values[c] * factor;
  if (width == kLanes) {
    convert(scaled, target, kLanes);
  } else {
    convert(scaled, target, width);
  }
}

// factor times rows of a tensor, `stride` elements apart.
template <typename T>
void load_panels(const T* source, int64_t stride, int64_t rows, Accumulate<T> factor,
                 const Panels<Accumulate<T>>& to) {
  wide_loop([=](auto) {
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t panel = 0; panel < to.count(); ++panel) {
        const T* from = source + row * stride + panel * kLanes;
        prefetch_lanes<0>(from + kRowsAhead * stride);
        load_row(from, to.width(panel), factor, to.row(panel, row));
      }
    }
  });
}

// Row i times factor and, when given, factors[i], to rows of a tensor.
template <typename T>
void store_panels(const Panels<Accumulate<T>>& from, Accumulate<T> factor,
                  const Accumulate<T>* factors, int64_t rows, T* target, int64_t stride) {
  wide_loop([=](auto) {
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t panel = 0; panel < from.count(); ++panel) {
        T* to = target + row * stride + panel * kLanes;
        prefetch_lanes<1>(to + kRowsAhead * stride);
        store_row(from.row(panel, row), from.width(panel), factors ? factor * factors[row] : factor,
                  to);
      }
    }
  });
}

// One of the five riffles, each of which halves the distance of neighbours in a column, that
// transpose a (32, 32) matrix.
template <typename A>
inline void riffle(const A* from, A* to) {
  constexpr int kHalf = kLanes * kLanes / 2;
#pragma omp simd
  for (int i = 0; i < kHalf; ++i) {
    to[2 * i] = from[i];
    to[2 * i + 1] = from[kHalf + i];
  }
}

// to (panels * 32, 32) = the first 32 rows of `from`, transposed.
template <typename A>
void transpose_panels(const Panels<A>& from, A* to) {
  wide_loop([=](auto) {
    A between[kLanes * kLanes];
    for (int64_t panel = 0; panel < from.count(); ++panel) {
      A* square = to + panel * kLanes * kLanes;
      riffle(from.row(panel, 0), square);
      riffle(square, between);
      riffle(between, square);
      riffle(square, between);
      riffle(between, square);
    }
  });
}

}  // namespace fsdp::cpu
