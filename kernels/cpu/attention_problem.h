// What forward and backward of attention share: the arguments read out at the call, since the
// tensors may be gone when the task runs.
#pragma once

#include <optional>

#include "core/tensor.h"
#include "kernels/cpu/attention_softmax.h"

namespace fsdp::cpu {

// A HeadView with its tensor's memory: row t of head h of sample b is at head(b, h) + t *
// row_width.
template <typename T>
struct HeadRows {
  T* data;
  int64_t length, row_width, head_stride;

  explicit HeadRows(const HeadView& view)
      : data(view.tensor->data_as<T>() + view.offset),
        length(view.tensor->shape()[1]),
        row_width(view.tensor->shape()[2]),
        head_stride(view.head_stride) {}
  // Plain (B, T, heads * head_dim).
  HeadRows(const Tensor& tensor, int64_t head_dim)
      : data(tensor.data_as<T>()),
        length(tensor.shape()[1]),
        row_width(tensor.shape()[2]),
        head_stride(head_dim) {}

  T* head(int64_t b, int64_t h) const { return data + b * length * row_width + h * head_stride; }
};

// AttentionArgs::key_bias: what is added to the scores of keys 0, 1, ... for head h of sample b;
// null without one.
template <typename A>
struct KeyBias {
  const A* data = nullptr;
  int64_t batch_stride = 0, head_stride = 0;

  explicit KeyBias(const Tensor* bias) {
    if (!bias) return;
    const Shape& shape = bias->shape();
    data = bias->data_as<A>();
    batch_stride = shape[0] > 1 ? shape[1] * shape[2] : 0;
    head_stride = shape[1] > 1 ? shape[2] : 0;
  }
  const A* row(int64_t b, int64_t h) const {
    return data ? data + b * batch_stride + h * head_stride : nullptr;
  }
};

struct AttentionShape {
  int64_t batch, heads, kv_heads, queries, keys, head_dim;
  double scale;
  bool causal;
  int64_t window;
  const int32_t* first_key;  // (batch, queries) or null
  std::optional<CpuDropoutMask> dropout;
  const int64_t* samples = nullptr;  // (batch), with dropout

  explicit AttentionShape(const AttentionArgs& args)
      : batch(args.q.tensor->shape()[0]),
        heads(args.q.heads),
        kv_heads(args.k.heads),
        queries(args.q.tensor->shape()[1]),
        keys(args.keys > 0 ? args.keys : args.k.tensor->shape()[1]),
        head_dim(args.q.head_dim),
        scale(args.scale),
        causal(args.causal),
        window(args.window),
        first_key(args.first_key ? args.first_key->data_as<int32_t>() : nullptr) {
    if (args.dropout.probability > 0) {
      dropout.emplace(args.dropout);
      samples = args.dropout.samples->data_as<int64_t>();
    }
  }

  int64_t group() const { return heads / kv_heads; }  // query heads per key-value head
  // The block of queries [first_query, first_query + count) of sample b.
  Visibility visibility(int64_t b, int64_t first_query, int64_t count) const {
    const int64_t position = first_query + keys - queries;
    return {.first_position = position,
            .last_position = position + count - 1,
            .keys = keys,
            .causal = causal,
            .window = window,
            .first_keys = first_key ? first_key + b * queries + first_query : nullptr};
  }
  // The dropout mask of the tile that starts at (query, key) of head h.
  template <typename A>
  void draw_keep(int64_t b, int64_t h, int64_t query, int64_t count, int64_t key, int64_t tile_keys,
                 A* keep) const {
    cpu::draw_keep(*dropout, static_cast<uint64_t>(samples[b]), (h * queries + query) * keys + key,
                   keys, count, tile_keys, keep);
  }
};

// Hands out parts of a thread's scratch memory.
template <typename A>
class Carver {
 public:
  explicit Carver(void* memory) : next_(static_cast<A*>(memory)) {}
  A* take(int64_t elements) {
    A* taken = next_;
    next_ += elements;
    return taken;
  }
  Panels<A> take_panels(int64_t columns, int64_t rows) {
    Panels<A> panels = {nullptr, columns, rows};
    panels.data = take(panels.size());
    return panels;
  }

 private:
  A* next_;
};

// scores (keys, 32) = rows [first, first + keys) of `rows` times transposed (columns, 32).
template <typename A>
void multiply_transposed(const Panels<A>& rows, int64_t first, int64_t keys, const A* transposed,
                         A* scores) {
  std::fill_n(scores, keys * kLanes, A(0));
  for (int64_t panel = 0; panel < rows.count(); ++panel) {
    multiply_rows(rows.row(panel, first), transposed + panel * kLanes * kLanes, scores, keys,
                  rows.width(panel));
  }
}

}  // namespace fsdp::cpu
