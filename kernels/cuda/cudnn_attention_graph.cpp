// The graphs: one of the forward pass, two of the backward. See [Note: attention for cuDNN] in the
// header.
#include "kernels/cuda/cudnn_attention_graph.h"

#include <optional>

namespace fsdp::cuda {
namespace {

using dnn::Extents;
using dnn::Graph;
using dnn::GraphTensor;

// Dimensions 2 and 3 exchanged: the same memory, read as the transposed matrix.
template <typename T>
T exchanged(T four) {
  std::swap(four[2], four[3]);
  return four;
}

class AttentionGraph {
 public:
  explicit AttentionGraph(const CudnnAttentionKind& kind)
      : k_(kind),
        type_(kind.dtype == DType::kBF16 ? dnn::kBFloat16 : dnn::kHalf),
        scores_{kind.batch, kind.heads, kind.queries, kind.keys},
        rows_{kind.batch, kind.heads, kind.queries, 1},
        q_(head_rows(kQueryRows, kind.heads, kind.queries, kind.q)),
        key_columns_(head_columns(kKeyRows, kind.k)),
        scale_(graph_.scalar(kScale, dnn::kFloat)),
        log_sum_exp_(statistics(kLogSumExp)) {}

  Graph forward() && {
    const GraphTensor scores = hide(add_bias(scaled(product(q_, key_columns_))));
    const GraphTensor largest = reduced(dnn::kReduceMax, scores);
    const GraphTensor weights =
        pointwise({dnn::kExp, pointwise({dnn::kSubtract, scores, &largest})});
    const GraphTensor total = reduced(dnn::kReduceAdd, weights);
    const GraphTensor log_total = pointwise({dnn::kLog, total});
    graph_.pointwise({dnn::kAdd, largest, &log_total}, log_sum_exp_);
    const GraphTensor rounded = graph_.between(type_, scores_);
    graph_.pointwise({dnn::kDivide, weights, &total}, rounded);
    graph_.matmul(rounded, head_rows(kValueRows, k_.kv_heads, k_.keys, k_.v),
                  head_rows(kOutRows, k_.heads, k_.queries, k_.out));
    return std::move(graph_);
  }

  Graph backward() && {
    const GraphTensor dout = head_rows(kDOut, k_.heads, k_.queries, k_.out);
    const GraphTensor delta = write_delta(dout);
    const GraphTensor exponents = add_bias(scaled(product(q_, key_columns_)));
    const GraphTensor weights =
        pointwise({dnn::kExp, hide(pointwise({dnn::kSubtract, exponents, &log_sum_exp_}))});
    add_over_queries(weights, dout, kDValue, k_.dv);

    const GraphTensor dweights = product(dout, head_columns(kValueRows, k_.v));
    const GraphTensor centred = pointwise({dnn::kSubtract, dweights, &delta});
    const GraphTensor dscores = scaled(pointwise({dnn::kMultiply, centred, &weights}));
    add_over_queries(dscores, q_, kDKey, k_.dk);

    const GraphTensor keys =
        graph_.between(type_, {k_.batch, k_.kv_heads, k_.keys, k_.head_dim}, strides_of(k_.k));
    graph_.reshape(key_columns_, keys);
    write_dq(dscores, keys);
    return std::move(graph_);
  }

 private:
  static Extents strides_of(const HeadStrides& s) { return {s.batch, s.head, s.row, 1}; }

  GraphTensor head_rows(int64_t id, int64_t heads, int64_t length, const HeadStrides& strides) {
    return graph_.memory(id, type_, {k_.batch, heads, length, k_.head_dim}, strides_of(strides));
  }
  // Of keys or values: a head as head_dim x keys.
  GraphTensor head_columns(int64_t id, const HeadStrides& strides) {
    return graph_.memory(id, type_, {k_.batch, k_.kv_heads, k_.head_dim, k_.keys},
                         exchanged(strides_of(strides)));
  }
  GraphTensor statistics(int64_t id) {
    return graph_.memory(id, dnn::kFloat, rows_, {k_.statistics_batch_stride, k_.queries, 1, 1});
  }

  GraphTensor product(const GraphTensor& a, const GraphTensor& b) {
    const GraphTensor c = graph_.between(dnn::kFloat, scores_);
    graph_.matmul(a, b, c);
    return c;
  }
  GraphTensor pointwise(const Graph::Pointwise& operation) {
    const GraphTensor y = graph_.between(dnn::kFloat, operation.x.dimensions);
    graph_.pointwise(operation, y);
    return y;
  }
  GraphTensor reduced(dnn::ReductionOperator operation, const GraphTensor& x) {
    const GraphTensor y = graph_.between(dnn::kFloat, rows_);
    graph_.reduce(operation, x, y);
    return y;
  }
  GraphTensor scaled(const GraphTensor& scores) {
    return pointwise({dnn::kMultiply, scores, &scale_});
  }

  GraphTensor add_bias(const GraphTensor& scores) {
    if (k_.bias_heads == 0) return scores;
    const GraphTensor bias = graph_.memory(
        kKeyBias, dnn::kFloat, {1, k_.bias_heads, 1, k_.keys},
        {k_.bias_heads * k_.bias_head_stride, k_.bias_head_stride, k_.bias_head_stride, 1});
    return pointwise({dnn::kAdd, scores, &bias});
  }

  GraphTensor index(const GraphTensor& scores, int64_t axis) {
    const GraphTensor y = graph_.between(dnn::kInt32, scores_);
    graph_.pointwise({.mode = dnn::kGenerateIndex, .x = scores, .axis = axis}, y);
    return y;
  }
  // scores where larger `mode` smaller holds, else minus infinity.
  GraphTensor keep_where(dnn::PointwiseMode mode, const GraphTensor& larger,
                         const GraphTensor& smaller, const GraphTensor& scores) {
    const GraphTensor mask = graph_.between(dnn::kBoolean, scores_);
    graph_.pointwise({.mode = mode, .x = larger, .b = &smaller, .precision = dnn::kBoolean}, mask);
    if (!hidden_) hidden_ = graph_.scalar(kHidden, dnn::kFloat);
    return pointwise({.mode = dnn::kBinarySelect, .x = scores, .b = &*hidden_, .t = &mask});
  }
  GraphTensor hide(GraphTensor scores) {
    if (k_.causal) {
      const GraphTensor query = index(scores, 2), key = index(scores, 3);
      scores = keep_where(dnn::kCompareGreaterEqual, query, key, scores);
    }
    if (k_.window > 0) {  // key + window > query
      const GraphTensor query = index(scores, 2), key = index(scores, 3);
      const GraphTensor window = graph_.scalar(kWindow, dnn::kFloat);
      const GraphTensor end = pointwise({dnn::kAdd, key, &window});
      scores = keep_where(dnn::kCompareGreater, end, query, scores);
    }
    if (k_.documents) {
      const GraphTensor key = index(scores, 3);
      const GraphTensor first = graph_.memory(kFirstKey, dnn::kInt32, {k_.batch, 1, k_.queries, 1},
                                              {k_.queries, k_.queries, 1, 1});
      scores = keep_where(dnn::kCompareGreaterEqual, key, first, scores);
    }
    return scores;
  }

  // delta: the sum of dout * out over a head's elements.
  GraphTensor write_delta(const GraphTensor& dout) {
    const GraphTensor out = head_rows(kOutRows, k_.heads, k_.queries, k_.out);
    const GraphTensor sums = reduced(dnn::kReduceAdd, pointwise({dnn::kMultiply, dout, &out}));
    const GraphTensor delta = statistics(kDelta);
    const GraphTensor one = graph_.scalar(kOne, dnn::kFloat);
    graph_.pointwise({dnn::kMultiply, sums, &one}, delta);
    return delta;
  }

  // The product of transposed (queries x keys) and rows (queries x head_dim), to a gradient of keys
  // or values; over the query heads that share them.
  void add_over_queries(const GraphTensor& by_query, const GraphTensor& rows, int64_t id,
                        const HeadStrides& strides) {
    const GraphTensor transposed =
        graph_.between(type_, exchanged(scores_), exchanged(dnn::packed_strides(scores_)));
    graph_.reshape(by_query, transposed);
    const GraphTensor gradient = head_rows(id, k_.kv_heads, k_.keys, strides);
    if (k_.heads == k_.kv_heads) return graph_.matmul(transposed, rows, gradient);
    const GraphTensor by_head = graph_.between(type_, {k_.batch, k_.heads, k_.keys, k_.head_dim});
    graph_.matmul(transposed, rows, by_head);
    graph_.reduce(dnn::kReduceAdd, by_head, gradient);
  }

  // [Note: attention for cuDNN] says what the sums do.
  void write_dq(const GraphTensor& dscores, const GraphTensor& keys) {
    const GraphTensor dq = head_rows(kDQuery, k_.heads, k_.queries, k_.dq);
    if (k_.deterministic) return graph_.matmul(dscores, keys, dq);
    const Extents extents = {k_.batch, k_.heads, k_.queries, k_.head_dim};
    const GraphTensor sums =
        graph_.memory(kDQuerySums, dnn::kFloat, extents, dnn::packed_strides(extents));
    graph_.matmul(dscores, keys, sums);
    graph_.pointwise({dnn::kIdentity, sums}, dq);
  }

  const CudnnAttentionKind& k_;
  Graph graph_;
  dnn::DataType type_;
  Extents scores_, rows_;
  GraphTensor q_, key_columns_, scale_, log_sum_exp_;
  std::optional<GraphTensor> hidden_;  // minus infinity
};

}  // namespace

int64_t sums_bytes(const CudnnAttentionKind& kind) {
  if (!kind.backward || kind.deterministic) return 0;
  const auto bytes = static_cast<int64_t>(sizeof(float));
  return kind.batch * kind.heads * kind.queries * kind.head_dim * bytes;
}

dnn::Graph attention_graph(const CudnnAttentionKind& kind) {
  AttentionGraph graph(kind);
  return kind.backward ? std::move(graph).backward() : std::move(graph).forward();
}

}  // namespace fsdp::cuda
