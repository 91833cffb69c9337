// Cases of attention that the tests of both backends run: masks, grouped heads, row layouts,
// dropout, documents that share a row.
#pragma once

#include "core/layer_args.h"
#include "tests/support/kernel_support.h"

namespace fsdp::test {

enum class Layout { kSeparate, kPacked, kInterleaved };  // the latter two: all in one tensor

struct Case {
  int64_t batch, heads, kv_heads, queries, keys, head_dim;
  bool causal = true;
  int64_t window = 0;
  double dropout = 0;
  Layout layout = Layout::kSeparate;
  Shape bias = {};                      // of the key bias; rank 0: none
  std::vector<int64_t> documents = {};  // their lengths, in turn; sample b begins with number b
};

// Where the document of token i of sample b begins.
inline int64_t first_key(const Case& c, int64_t b, int64_t i) {
  int64_t begin = 0;
  for (size_t n = size_t(b); !c.documents.empty(); ++n) {
    const int64_t end = begin + c.documents[n % c.documents.size()];
    if (i < end) break;
    begin = end;
  }
  return begin;
}

// Slopes of several signs; the first b % 4 keys of sample b are hidden, so that its first queries
// see nothing.
inline double bias_at(const Case& c, int64_t b, int64_t h, int64_t j) {
  if (c.bias.rank() == 0) return 0;
  if (c.bias[0] == 1) b = 0;
  if (c.bias[1] == 1) h = 0;
  if (c.bias[0] > 1 && j < b % 4) return -std::numeric_limits<double>::infinity();
  return double(h - 1) * 0.25 * double(j) / 8;
}

inline constexpr DropoutKey kKey = {.seed = 11, .step = 3, .micro_step = 0, .layer = 2, .site = 5};

inline double keep(const Case& c, int64_t b, int64_t h, int64_t i, int64_t j) {
  const auto element = uint64_t((h * c.queries + i) * c.keys + j);
  const Philox4x32 words =
      philox4x32(dropout_counter(element / 4, uint64_t(40 + b), kKey.step), dropout_key(kKey));
  return double(uniform_float(words[element % 4])) >= c.dropout ? 1 / (1 - c.dropout) : 0;
}

inline bool visible(const Case& c, int64_t b, int64_t i, int64_t j) {
  const int64_t position = i + c.keys - c.queries;
  return j >= first_key(c, b, i) && (!c.causal || j <= position) &&
         (c.window == 0 || j > position - c.window);
}

// q (B, Tq, heads, D), k and v (B, Tk, kv_heads, D), and the gradient of the output.
struct Operands {
  Values q, k, v, dout;

  Operands(const Case& c, DType dtype)
      : q(rounded(random_values(c.batch * c.queries * c.heads * c.head_dim, 1), dtype)),
        k(rounded(random_values(c.batch * c.keys * c.kv_heads * c.head_dim, 2), dtype)),
        v(rounded(random_values(c.batch * c.keys * c.kv_heads * c.head_dim, 3), dtype)),
        dout(rounded(random_values(int64_t(q.size()), 4), dtype)) {}
};

inline double scale_of(const Case& c) { return 1.5 / std::sqrt(double(c.head_dim)); }

// Tensors that hold q, k, v (or their gradients) in the case's layout.
struct Rows {
  std::vector<Tensor> tensors;
  HeadView q, k, v;

  Rows(Backend& backend, const Case& c, DType dtype) {
    const int64_t D = c.head_dim, q_width = c.heads * D, kv_width = c.kv_heads * D;
    if (c.layout == Layout::kSeparate) {
      for (const auto& [length, width] :
           {std::pair{c.queries, q_width}, {c.keys, kv_width}, {c.keys, kv_width}}) {
        tensors.push_back(Tensor::zeros(backend, {c.batch, length, width}, dtype));
      }
      q = {&tensors[0], c.heads, D, 0, D};
      k = {&tensors[1], c.kv_heads, D, 0, D};
      v = {&tensors[2], c.kv_heads, D, 0, D};
      return;
    }
    tensors = {Tensor::zeros(backend, {c.batch, c.queries, q_width + 2 * kv_width}, dtype)};
    const bool packed = c.layout == Layout::kPacked;
    q = {&tensors[0], c.heads, D, 0, packed ? D : 3 * D};
    k = {&tensors[0], c.kv_heads, D, packed ? q_width : D, q.head_stride};
    v = {&tensors[0], c.kv_heads, D, packed ? q_width + kv_width : 2 * D, q.head_stride};
  }
  Rows(const Rows&) = delete;

  // f(index into the tensor, index into (B, T, heads, D)) for every element of a view.
  template <typename F>
  static void for_each(const HeadView& view, F f) {
    const Shape& shape = view.tensor->shape();
    size_t plain = 0;
    for (int64_t row = 0; row < shape[0] * shape[1]; ++row) {
      for (int64_t h = 0; h < view.heads; ++h) {
        for (int64_t d = 0; d < view.head_dim; ++d) {
          f(size_t(row * shape[2] + view.offset + h * view.head_stride + d), plain++);
        }
      }
    }
  }
  static void put(const HeadView& view, const Values& values) {
    Values all = view.tensor->to_doubles();
    for_each(view, [&](size_t at, size_t from) { all[at] = values[from]; });
    Backend& backend = view.tensor->backend();
    const Tensor filled = make_tensor(backend, view.tensor->shape(), view.tensor->dtype(), all);
    backend.copy(backend.compute_stream(), view.tensor->data(), filled.data(), filled.bytes());
  }
  static Values get(const HeadView& view) {
    const Values all = view.tensor->to_doubles();
    Values values(
        size_t(view.tensor->shape()[0] * view.tensor->shape()[1] * view.heads * view.head_dim));
    for_each(view, [&](size_t at, size_t to) { values[to] = all[at]; });
    return values;
  }
};

inline Tensor key_bias(Backend& backend, const Case& c, DType dtype) {
  if (c.bias.rank() == 0) return Tensor();
  Values values;
  for (int64_t i = 0; i < c.bias.numel(); ++i) {
    const int64_t row = i / c.bias[2];
    values.push_back(bias_at(c, row / c.bias[1], row % c.bias[1], i % c.bias[2]));
  }
  return make_tensor(backend, c.bias, dtype, values);
}

inline Tensor first_keys(Backend& backend, const Case& c) {
  if (c.documents.empty()) return Tensor();
  std::vector<int32_t> values;
  for (int64_t i = 0; i < c.batch * c.queries; ++i) {
    values.push_back(int32_t(first_key(c, i / c.queries, i % c.queries)));
  }
  return Tensor::from_host(backend, {c.batch, c.queries}, values);
}

// {out, log_sum_exp, dq, dk, dv}. look(arguments of the backward pass)
template <typename Look>
std::vector<Values> run_attention(Backend& backend, const Case& c, DType dtype, const Operands& o,
                                  Look look) {
  Rows rows(backend, c, dtype), gradients(backend, c, dtype);
  Rows::put(rows.q, o.q);
  Rows::put(rows.k, o.k);
  Rows::put(rows.v, o.v);
  std::vector<int64_t> ids;
  for (int64_t b = 0; b < c.batch; ++b) ids.push_back(40 + b);
  const Tensor samples = Tensor::from_host(backend, {c.batch}, ids);
  const Tensor bias = key_bias(backend, c, accumulation_dtype(dtype));
  const Tensor documents = first_keys(backend, c);
  const AttentionArgs in = {
      .q = rows.q,
      .k = rows.k,
      .v = rows.v,
      .scale = scale_of(c),
      .causal = c.causal,
      .window = c.window,
      .key_bias = bias.defined() ? &bias : nullptr,
      .hides_keys = bias.defined() && c.bias[0] > 1,
      .first_key = documents.defined() ? &documents : nullptr,
      .dropout = {.probability = c.dropout, .key = kKey, .samples = &samples}};
  const Shape out_shape = {c.batch, c.queries, c.heads * c.head_dim};
  const Shape statistics = {c.batch, c.heads, c.queries};
  Tensor out = Tensor::empty(backend, out_shape, dtype);
  Tensor log_sum_exp = Tensor::empty(backend, statistics, accumulation_dtype(dtype));
  Tensor delta = Tensor::empty(backend, statistics, accumulation_dtype(dtype));
  const Tensor dout = make_tensor(backend, out_shape, dtype, o.dout);
  Stream& stream = backend.compute_stream();
  backend.run(stream, AttentionForwardArgs{.in = in, .out = out, .log_sum_exp = log_sum_exp});
  const AttentionBackwardArgs backward = {.in = in,
                                          .out = out,
                                          .log_sum_exp = log_sum_exp,
                                          .dout = dout,
                                          .delta = delta,
                                          .dq = gradients.q,
                                          .dk = gradients.k,
                                          .dv = gradients.v};
  look(backward);
  backend.run(stream, backward);
  return {out.to_doubles(), log_sum_exp.to_doubles(), Rows::get(gradients.q),
          Rows::get(gradients.k), Rows::get(gradients.v)};
}

inline std::vector<Values> run_attention(Backend& backend, const Case& c, DType dtype,
                                         const Operands& o) {
  return run_attention(backend, c, dtype, o, [](const AttentionBackwardArgs&) {});
}

// Other numbers in one document of sample 0, one after the other, change bits of its results and no
// bit of any other's. With `poison` v and dout are not numbers, and nobody may even multiply them
// by 0: kernels skip the tiles of other documents. Then the documents of `c` have to be whole
// tiles.
inline void check_documents_apart(Backend& backend, const Case& c, DType dtype, bool poison) {
  const Operands before(c, dtype);
  const std::vector<Values> expected = run_attention(backend, c, dtype, before);
  const auto token_of = [&](size_t result, size_t i) {  // of all samples
    const auto element = int64_t(i);
    if (result == 1) return element / (c.heads * c.queries) * c.queries + element % c.queries;
    return element / (c.head_dim * (result < 3 ? c.heads : c.kv_heads));
  };
  for (int64_t begin = 0, end = 0; begin < c.queries; begin = end) {
    while (end < c.queries && first_key(c, 0, end) == begin) ++end;
    CAPTURE(begin);
    Operands o = before;
    for (const auto& [values, heads] :
         {std::pair{&o.q, c.heads}, {&o.k, c.kv_heads}, {&o.v, c.kv_heads}, {&o.dout, c.heads}}) {
      // Scores that are not numbers would make the queries blind, and blind ones read all keys.
      if (poison && (values == &o.q || values == &o.k)) continue;
      for (int64_t i = begin * heads * c.head_dim; i < end * heads * c.head_dim; ++i) {
        (*values)[size_t(i)] = poison ? NAN : 3 - (*values)[size_t(i)];
      }
    }
    const std::vector<Values> actual = run_attention(backend, c, dtype, o);
    for (size_t result = 0; result < actual.size(); ++result) {
      CAPTURE(result);
      int64_t changed = 0, leaked = 0;
      for (size_t i = 0; i < actual[result].size(); ++i) {
        const int64_t token = token_of(result, i);
        const bool same = actual[result][i] == expected[result][i];
        (token >= begin && token < end ? changed : leaked) += !same;
      }
      CHECK(leaked == 0);
      // Poison leaves log_sum_exp alone; one token has no gradient of q and k.
      CHECK((changed > 0 || (poison && result == 1) || end - begin == 1));
    }
  }
}

inline const Case kDocumentCases[] = {
    {2, 2, 1, 65, 65, 33, true, 0, 0, Layout::kSeparate, {}, {40, 3, 1, 30}},  // grouped
    {1, 1, 1, 150, 150, 16, true, 20, 0, Layout::kSeparate, {}, {70, 9}},      // both windows
    {1, 2, 2, 9, 9, 8, true, 0, 0, Layout::kPacked, {}, {1}},
    {2, 3, 3, 37, 37, 12, true, 0, 0, Layout::kInterleaved, {1, 3, 40}, {5, 17}},  // ALiBi
    {2, 4, 2, 35, 35, 12, true, 0, 0.3, Layout::kPacked, {}, {20, 33}},
};
// Documents of whole tiles of both backends.
inline const Case kDocumentsOfTiles = {1,  2,        1, 320, 320, 8, true, 0, 0, Layout::kSeparate,
                                       {}, {128, 64}};

}  // namespace fsdp::test
