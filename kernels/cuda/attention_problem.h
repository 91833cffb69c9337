// What the kernels of attention share: the arguments as a kernel takes them, who sees whom, the
// dropout of weights, and the choice of a kernel. Scores are kept in powers of two: scale and bias
// times log2(e). Read next: attention_tile.h (products), attention.cu, attention_backward.cu.
#pragma once

#include <algorithm>
#include <limits>

#include "core/dropout_mask.h"
#include "core/layer_args.h"
#include "kernels/cuda/attention_tile.h"

namespace fsdp::cuda {

constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A HeadView with its tensor's memory.
template <typename T>
struct HeadRows {
  T* data;
  int64_t length, row_width, head_stride;
  bool aligned;  // every row of every head begins at 16 bytes and has a multiple of them

  explicit HeadRows(const HeadView& view)
      : HeadRows(view.tensor->data_as<T>() + view.offset, *view.tensor, view.head_stride,
                 view.head_dim) {}
  // Plain (B, T, heads * head_dim).
  HeadRows(const Tensor& tensor, int64_t head_dim)
      : HeadRows(tensor.data_as<T>(), tensor, head_dim, head_dim) {}

  __device__ __forceinline__ T* row(int b, int h, int t) const {
    return data + (b * length + t) * row_width + h * head_stride;
  }

 private:
  HeadRows(T* first, const Tensor& tensor, int64_t stride, int64_t head_dim)
      : data(first),
        length(tensor.shape()[1]),
        row_width(tensor.shape()[2]),
        head_stride(stride),
        aligned(aligned_to_16({first}) &&
                (row_width | head_stride | head_dim) % int64_t{16 / sizeof(T)} == 0) {}
};

struct AttentionShape {
  int batch, heads, kv_heads, queries, keys, head_dim;
  int offset;  // position of the first query among the keys; may be negative
  bool causal;
  int window;  // 0: none
  float scale;
  float uniform;  // weight of every key for a query that sees none
  const float* bias;
  int64_t bias_batch_stride, bias_head_stride;
  const int* first_key;    // (batch, queries) or null
  const int64_t* samples;  // null: no dropout
  DropoutMask<float> dropout;

  explicit AttentionShape(const AttentionArgs& args);

  // The first key that a query of sample b sees, by its window or its document; of a query that
  // does not exist, as the last one. Later queries begin at later keys.
  __device__ __forceinline__ int first_visible(int b, int query) const {
    const int in_window = window > 0 ? query + offset - window + 1 : 0;
    return first_key ? max(in_window,
                           first_key[static_cast<int64_t>(b) * queries + min(query, queries - 1)])
                     : in_window;
  }
  // Whether a key is hidden from a query that sees keys from `begin` on, or does not exist.
  __device__ __forceinline__ bool hides(int query, int key, int begin) const {
    return key >= keys || key < begin || (causal && key > query + offset);
  }
  // Whether that holds for some pair of [query, ...] and [key, last_key]; last_begin: of the last
  // of these queries.
  __device__ __forceinline__ bool hides_some(int query, int last_begin, int key,
                                             int last_key) const {
    return last_key >= keys || key < last_begin || (causal && last_key > query + offset);
  }
  __device__ __forceinline__ const float* bias_row(int b, int h) const {
    return bias ? bias + b * bias_batch_stride + h * bias_head_stride : nullptr;
  }
};

// In powers of two; of keys that do not exist: 0.
__device__ __forceinline__ float bias_at(const float* row, int key, int keys) {
  return row && key < keys ? row[key] * kLog2E : 0.0f;
}

// Begin and end of a run of tiles.
struct TileRange {
  int begin, end;
};

__device__ __forceinline__ int clamp_to(int x, int limit) { return max(0, min(x, limit)); }

// Tiles with the keys that some query of [first, last] of sample b sees.
template <int kCols>
__device__ __forceinline__ TileRange visible_keys(const AttentionShape& s, int b, int first,
                                                  int last) {
  const int begin = clamp_to(s.first_visible(b, first), s.keys);
  const int end = s.causal ? clamp_to(last + s.offset + 1, s.keys) : s.keys;
  return {begin / kCols, (end + kCols - 1) / kCols};
}
// Tiles with the queries of sample b that see some key of [first, last].
template <int kCols>
__device__ __forceinline__ TileRange seeing_queries(const AttentionShape& s, int b, int first,
                                                    int last) {
  const int begin = s.causal ? clamp_to(first - s.offset, s.queries) : 0;
  int end = s.window > 0 ? clamp_to(last - s.offset + s.window, s.queries) : s.queries;
  if (s.first_key) {  // the first query that begins behind them
    for (int low = begin; low < end;) {
      const int middle = (low + end) / 2;
      if (s.first_visible(b, middle) > last) {
        end = middle;
      } else {
        low = middle + 1;
      }
    }
  }
  return {begin / kCols, (end + kCols - 1) / kCols};
}

// Draws what a weight is multiplied by: 0 or the dropout scale. Keeps the last four words drawn.
class KeepDraw {
 public:
  __device__ __forceinline__ KeepDraw(const AttentionShape& s, int b, int h)
      : s_(s),
        sample_(static_cast<uint64_t>(s.samples[b])),
        first_(static_cast<uint64_t>(h) * static_cast<uint64_t>(s.queries)) {}

  __device__ __forceinline__ float operator()(int query, int key) {
    const uint64_t element =
        (first_ + static_cast<uint64_t>(query)) * static_cast<uint64_t>(s_.keys) +
        static_cast<uint64_t>(key);
    if (element / 4 != block_) {
      block_ = element / 4;
      words_ = s_.dropout.words(sample_, block_);
    }
    const uint32_t low = element & 1 ? words_[1] : words_[0];
    const uint32_t high = element & 1 ? words_[3] : words_[2];
    return s_.dropout.keeps(element & 2 ? high : low) ? s_.dropout.scale : 0.0f;
  }

 private:
  const AttentionShape& s_;
  uint64_t sample_, first_, block_ = ~uint64_t{0};
  Philox4x32 words_{};
};

// Rows of a result fragment, times a factor each, to rows [first, length) of a head.
template <typename Multiply, typename T, typename Out>
__device__ __forceinline__ void store_rows(Out& out, const float (&factor)[Multiply::kRows],
                                           const HeadRows<T>& to, int b, int h, int first,
                                           int length, int head_dim) {
  constexpr int kRun = Multiply::kRun;
#pragma unroll
  for (int i = 0; i < Multiply::kRows; ++i) {
    const int t = first + Multiply::row(i);
    if (t >= length) continue;
    T* row = to.row(b, h, t);
#pragma unroll
    for (int j = 0; j < Out::kOfThread; j += kRun) {
      const int column = Multiply::out_column(j);
      float values[kRun];
#pragma unroll
      for (int e = 0; e < kRun; ++e) values[e] = out.at(i, j + e) * factor[i];
      if (to.aligned) {
        if (column < head_dim) store_narrowed<kRun>(row + column, values);
      } else {
#pragma unroll
        for (int e = 0; e < kRun; ++e) {
          if (column + e < head_dim) row[column + e] = narrowed<T>(values[e]);
        }
      }
    }
  }
}

// Shared memory of a block: its own tiles, two stages of two streamed tiles, scratch. In KiB,
// rounded up and with the static part (backward, at most 1), of what dispatch_attention() chooses
// from:
//                          forward  backward
//   16 bits, heads to 64      40       49
//   16 bits, heads to 128     80       65
//   f32, heads to 64          57       73
//   f32, heads to 128        105      101
// A100 gives a block 163, Hopper 227, consumer GPUs (8.6, 8.9, 12.x) 99: these refuse the last line
// by name (launch.h). No smaller tiles for them: models of such heads are computed in 16 bits. A
// multiprocessor has one KiB more than a block can get and spends one on every block: two blocks
// of the first line fit on all of these.
constexpr size_t kSharedOfA100 = 163 << 10;

template <typename Multiply>
struct AttentionMemory {
  using T = typename Multiply::T;
  using Tile = typename Multiply::Tile;
  static constexpr int kOwnElements = kOwnRows * Multiply::kDim;
  static constexpr int kStreamed = Multiply::kCols * Multiply::kDim;  // elements
  static constexpr size_t bytes(int own_tiles) {
    return sizeof(T) * static_cast<size_t>(own_tiles * kOwnElements + 4 * kStreamed) +
           Multiply::kScratchBytes;
  }
  static_assert(sizeof(T) * (2 * kOwnElements + 4 * kStreamed) + Multiply::kScratchBytes <=
                kSharedOfA100);

  T* memory;
  int own_tiles;
  __device__ Tile own(int i) const { return {memory + i * kOwnElements}; }
  __device__ Tile streamed(int stage, int i) const {
    return {memory + own_tiles * kOwnElements + (2 * stage + i) * kStreamed};
  }
  __device__ float* scratch() const { return reinterpret_cast<float*>(streamed(2, 0).data); }
};

// Calls f(TypeTag<Multiply>{}) with the way to multiply. kColumns, kWideColumns: streamed rows of a
// tile for heads of up to 64 and up to 128 elements in 16 bits.
template <int kColumns, int kWideColumns, typename F>
void dispatch_attention(DType dtype, int64_t head_dim, std::string_view op, F&& f) {
  FSDP_CHECK(head_dim <= 128, "[{}] head_dim: expected at most 128 on a GPU, got {}", op, head_dim);
  dispatch_device(dtype, op, [&]<typename T>(TypeTag<T>) {
    if constexpr (std::is_same_v<T, float>) {
      if (head_dim <= 64) return f(TypeTag<PlainMultiply<64, 32>>{});
      return f(TypeTag<PlainMultiply<128, kWideColumns / 2>>{});
    } else {
      if (head_dim <= 64) return f(TypeTag<TensorCores<T, 64, kColumns>>{});
      return f(TypeTag<TensorCores<T, 128, kWideColumns>>{});
    }
  });
}

inline AttentionShape::AttentionShape(const AttentionArgs& args)
    : batch(static_cast<int>(args.q.tensor->shape()[0])),
      heads(static_cast<int>(args.q.heads)),
      kv_heads(static_cast<int>(args.k.heads)),
      queries(static_cast<int>(args.q.tensor->shape()[1])),
      keys(static_cast<int>(args.keys > 0 ? args.keys : args.k.tensor->shape()[1])),
      head_dim(static_cast<int>(args.q.head_dim)),
      offset(keys - queries),
      causal(args.causal),
      // one over all keys hides none, and so fits an int
      window(args.window < keys + queries ? static_cast<int>(args.window) : 0),
      scale(static_cast<float>(args.scale)),
      uniform(1.0f / static_cast<float>(keys)),
      bias(args.key_bias ? args.key_bias->data_as<float>() : nullptr),
      bias_batch_stride(0),
      bias_head_stride(0),
      first_key(args.first_key ? args.first_key->data_as<int32_t>() : nullptr),
      samples(args.dropout.probability > 0 ? args.dropout.samples->data_as<int64_t>() : nullptr),
      dropout(args.dropout) {
  FSDP_CHECK(int64_t{queries} == args.q.tensor->shape()[1] && args.k.tensor->shape()[1] < 1 << 30,
             "[attention] lengths: expected fewer than 2^30 tokens on a GPU, got {} and {}",
             args.q.tensor->shape()[1], args.k.tensor->shape()[1]);
  if (!bias) return;
  const Shape& shape = args.key_bias->shape();
  bias_batch_stride = shape[0] > 1 ? shape[1] * shape[2] : 0;
  bias_head_stride = shape[1] > 1 ? shape[2] : 0;
}

}  // namespace fsdp::cuda
