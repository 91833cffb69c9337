// Masks, softmax and dropout on tiles of scores, (keys, 32 queries); see [Note: lanes and panels]
// in attention_tile.h. Products: there.
#pragma once

#include <limits>

#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/dropout.h"
#include "kernels/cpu/vector_math.h"

namespace fsdp::cpu {

template <typename A>
constexpr A kInfinity = std::numeric_limits<A>::infinity();

// Which keys a block of up to 32 queries may see. Positions count among the keys.
struct Visibility {
  int64_t first_position;  // of the block's first query
  int64_t last_position;   // of its last
  int64_t keys;            // Tk
  bool causal;
  int64_t window;             // 0: none
  const int32_t* first_keys;  // of the block's queries: AttentionArgs::first_key; null: 0

  int64_t queries() const { return last_position - first_position + 1; }
  // Keys seen by any query of the block: [begin, end).
  int64_t begin() const {
    const int64_t in_window = window > 0 ? first_position - window + 1 : 0;
    return std::clamp<int64_t>(std::max(in_window, first_keys ? first_keys[0] : int64_t{0}), 0,
                               keys);
  }
  int64_t end() const { return causal ? std::clamp<int64_t>(last_position + 1, 0, keys) : keys; }
  // Whether a key in [first, last] is hidden from some query of the block.
  bool masks(int64_t first, int64_t last) const {
    return (causal && last > first_position) || (window > 0 && first <= last_position - window) ||
           (first_keys && first < first_keys[queries() - 1]);
  }
};

// Scores of hidden keys become -infinity.
template <typename A>
void mask_scores(const Visibility& visibility, int64_t first_key, int64_t keys, A* scores) {
  const auto lane = [](int64_t i) { return std::clamp<int64_t>(i, 0, kLanes); };
  int64_t in_document = 0;  // queries whose first key is this one or before
  for (int64_t key = 0; key < keys; ++key) {
    // Query i sees this key when from <= i < to.
    const int64_t distance = first_key + key - visibility.first_position;
    const int64_t from = visibility.causal ? lane(distance) : 0;
    int64_t to = visibility.window > 0 ? lane(distance + visibility.window) : kLanes;
    if (const int32_t* first_keys = visibility.first_keys) {
      while (in_document < visibility.queries() && first_keys[in_document] <= first_key + key) {
        ++in_document;
      }
      to = std::min(to, in_document);
    }
    A* row = scores + key * kLanes;
    std::fill(row, row + from, -kInfinity<A>);
    std::fill(row + std::max(from, to), row + kLanes, -kInfinity<A>);
  }
}

template <typename A>
void add_key_bias(const A* bias, int64_t keys, A* scores) {
  wide_loop([=](auto) {
    for (int64_t key = 0; key < keys; ++key) {
      for (int i = 0; i < kLanes; ++i) scores[key * kLanes + i] += bias[key];
    }
  });
}

// The running softmax of a block of queries.
template <typename A>
struct OnlineSoftmax {
  A maximum[kLanes];  // -infinity: has seen nothing
  A total[kLanes];    // sum of exp(score - maximum)
  A factor[kLanes];   // of what was accumulated before the last tile

  void clear() {
    std::fill_n(maximum, kLanes, -kInfinity<A>);
    std::fill_n(total, kLanes, A(0));
  }
  // scores become exp(score - maximum) with the new maximum (Milakov & Gimelshein 2018, online
  // normalizer). Returns whether any factor differs from 1.
  bool add(A* scores, int64_t keys);
  // log_sum_exp: -infinity where nothing was seen; reciprocal of the total: 1 there.
  void finish(A* log_sum_exp, A* reciprocal) const;
};

template <typename A>
void raise_maximum(const A* scores, int64_t keys, A* maximum) {
  A largest[kLanes];
  for (int i = 0; i < kLanes; ++i) largest[i] = maximum[i];
  for (int64_t key = 0; key < keys; ++key) {
    const A* row = scores + key * kLanes;
#pragma omp simd
    for (int i = 0; i < kLanes; ++i) largest[i] = row[i] > largest[i] ? row[i] : largest[i];
  }
  for (int i = 0; i < kLanes; ++i) maximum[i] = largest[i];
}

template <typename A>
void exponentiate(A* scores, int64_t keys, const A* shift, A* total) {
  A sum[kLanes];
  for (int i = 0; i < kLanes; ++i) sum[i] = total[i];
  for (int64_t key = 0; key < keys; ++key) {
    A* row = scores + key * kLanes;
#pragma omp simd
    for (int i = 0; i < kLanes; ++i) {
      const A e = simd_exp(row[i] - shift[i]);
      row[i] = e;
      sum[i] += e;
    }
  }
  for (int i = 0; i < kLanes; ++i) total[i] = sum[i];
}

template <typename A>
bool OnlineSoftmax<A>::add(A* scores, int64_t keys) {
  int changed = 0;
  wide_loop([&](auto) {
    A before[kLanes], shift[kLanes];
    for (int i = 0; i < kLanes; ++i) before[i] = maximum[i];
    raise_maximum(scores, keys, maximum);
    for (int i = 0; i < kLanes; ++i) {
      shift[i] = maximum[i] > -kInfinity<A> ? maximum[i] : A(0);
      factor[i] = simd_exp(before[i] - shift[i]);
      total[i] *= factor[i];
      changed |= before[i] != maximum[i];
    }
    exponentiate(scores, keys, shift, total);
  });
  return changed != 0;
}

template <typename A>
void OnlineSoftmax<A>::finish(A* log_sum_exp, A* reciprocal) const {
  wide_loop([&](auto) {
#pragma omp simd
    for (int i = 0; i < kLanes; ++i) {
      log_sum_exp[i] = total[i] > 0 ? maximum[i] + simd_log(total[i]) : -kInfinity<A>;
      reciprocal[i] = total[i] > 0 ? A(1) / total[i] : A(1);
    }
  });
}

// What a query that sees no key gives every key: 1 / keys in its lane, 0 in the others. Whether
// there is one among the first `count`. `statistic`: -infinity for such a query, its maximum or its
// log_sum_exp; see AttentionArgs.
template <typename A>
bool uniform_weights(const A* statistic, int64_t count, int64_t keys, A* weights) {
  bool any = false;
  for (int64_t i = 0; i < kLanes; ++i) {
    const bool blind = i < count && statistic[i] == -kInfinity<A>;
    weights[i] = blind ? A(1) / static_cast<A>(keys) : A(0);
    any |= blind;
  }
  return any;
}

// Rows of a block's panels times one factor each.
template <typename A>
void scale_rows(const Panels<A>& panels, const A* factor) {
  wide_loop([data = panels.data, rows = panels.count() * kLanes, factor](auto) {
    for (int64_t row = 0; row < rows; ++row) {
      const A by = factor[row % kLanes];
      for (int i = 0; i < kLanes; ++i) data[row * kLanes + i] *= by;
    }
  });
}

// scores become the weights exp(score - log_sum_exp); 0 where nothing was seen.
template <typename A>
void recompute_weights(A* scores, int64_t keys, const A* log_sum_exp) {
  wide_loop([=](auto) {
    for (int64_t key = 0; key < keys; ++key) {
      A* row = scores + key * kLanes;
#pragma omp simd
      for (int i = 0; i < kLanes; ++i) {
        const A weight = simd_exp(row[i] - log_sum_exp[i]);
        row[i] = log_sum_exp[i] > -kInfinity<A> ? weight : A(0);
      }
    }
  });
}

// dweights become dscores = weights * (dweights * keep - delta), then weights *= keep. keep: 0 or
// the dropout scale; null: 1.
template <typename A>
void softmax_backward(A* weights, A* dweights, const A* keep, const A* delta, int64_t keys) {
  wide_loop([=](auto) {
    for (int64_t key = 0; key < keys; ++key) {
      A *p = weights + key * kLanes, *d = dweights + key * kLanes;
      if (!keep) {
#pragma omp simd
        for (int i = 0; i < kLanes; ++i) d[i] = p[i] * (d[i] - delta[i]);
        continue;
      }
      const A* m = keep + key * kLanes;
#pragma omp simd
      for (int i = 0; i < kLanes; ++i) {
        d[i] = p[i] * (d[i] * m[i] - delta[i]);
        p[i] *= m[i];
      }
    }
  });
}

template <typename A>
void multiply_elements(A* x, const A* by, int64_t keys) {
  for (int64_t i = 0; i < keys * kLanes; ++i) x[i] *= by[i];
}

// keep (keys, 32): the dropout mask of a tile; elements of query i start at
// first_element + i * query_stride.
template <typename A>
void draw_keep(const CpuDropoutMask& mask, uint64_t sample, int64_t first_element,
               int64_t query_stride, int64_t queries, int64_t keys, A* keep) {
  uint32_t words[kTileKeys + 8];
  const A scale = A(mask.scale);
  for (int64_t i = 0; i < queries; ++i) {
    const int64_t first = first_element + i * query_stride, skipped = first % 4;
    wide_loop([&](auto) {
      dropout_words(mask, sample, static_cast<uint64_t>(first / 4), (skipped + keys + 3) / 4,
                    words);
    });
    for (int64_t key = 0; key < keys; ++key) {
      keep[key * kLanes + i] = mask.keeps(words[skipped + key]) ? scale : A(0);
    }
  }
  for (int64_t key = 0; key < keys; ++key) {
    std::fill(keep + key * kLanes + queries, keep + (key + 1) * kLanes, A(0));
  }
}

}  // namespace fsdp::cpu
