// Arguments of the kernels of a model's layers: products, norms, passes over activations, heads,
// embeddings and the loss. The contract of each kernel (which field is read, written, optional)
// stands here. Optional tensors are pointers that may be null. Kernels trust shapes: core/ops
// checks them. What visit() is: core/kernel_args.h. Read next: core/shard_args.h.
#pragma once

#include <string>

#include "core/cost.h"
#include "core/layer_values.h"

namespace fsdp {

// c = op(a) op(b) [+ bias] [+ c]; accumulated in the accumulation dtype, rounded once on store.
// a and b share one dtype; c has that dtype or its accumulation dtype.
// [Note: padded rows] K and N are b's, M is c's: without an activation, rows of a and c
// may be longer than that. What lies behind is never read; what it holds afterwards is unspecified.
struct MatmulArgs {
  const Tensor& a;  // (M, K or more), or (K, M or more) when transpose_a
  const Tensor& b;  // (K, N), or (N, K) when transpose_b
  Tensor& c;        // (M, N or more)
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;       // c += the product; then neither bias nor activation
  const Tensor* bias = nullptr;  // (N), dtype of a
  Activation activation = Activation::kNone;
  Tensor* pre_activation =
      nullptr;  // (M, N): product + bias before the activation; required with one

  static constexpr std::string_view name() { return "matmul"; }
  MatmulExtents extents() const;
  Cost cost() const;
  std::string words() const;
  // Weights and their gradients lie in memory that the step has not touched for long. The other
  // operands of a product are activations, of which the step has just written one at least. A
  // weight gradient is the product whose first operand is transposed.
  template <typename V>
  MatmulArgs visit(V& v) const {
    const bool gradient = transpose_a;
    return {.a = v(kIn.size().memory(false), a),
            .b = v(kIn.size().memory(!gradient), b),
            .c = v((accumulate ? kInOut : kOut).size().memory(gradient), c),
            .transpose_a = transpose_a,
            .transpose_b = transpose_b,
            .accumulate = accumulate,
            .bias = v(kIn.small().says("bias"), bias),
            .activation = activation,
            .pre_activation = v(kOut.says(name_of(activation)), pre_activation)};
  }
};

// out[j] (+)= sum over rows of x[i][j], rows in a fixed order.
struct SumRowsArgs {
  const Tensor& x;  // (N, C or more); see [Note: padded rows]
  Tensor& out;      // (C), any floating dtype
  bool accumulate = false;

  static constexpr std::string_view name() { return "sum_rows"; }
  Cost cost() const;
  std::string words() const;
  template <typename V>
  SumRowsArgs visit(V& v) const {
    return {.x = v(kIn.size(), x),
            .out = v((accumulate ? kInOut : kOut).small().size(), out),
            .accumulate = accumulate};
  }
};

// What layer norm (mean given) and RMS norm (mean and bias null) are given, optionally fused with
// the residual add before it: sum = x + residual, y = norm(sum). Statistics in the accumulation
// dtype. RMS norm rounds x * rstd to the dtype of x before it multiplies by weight, as Llama does.
struct NormForwardArgs {
  const Tensor& x;                   // (N, C)
  const Tensor* residual = nullptr;  // (N, C)
  Tensor* sum = nullptr;             // (N, C), with residual
  const Tensor& weight;              // (C)
  const Tensor* bias = nullptr;      // (C)
  Tensor& y;                         // (N, C)
  Tensor* mean = nullptr;            // (N), accumulation dtype
  Tensor& rstd;                      // (N), accumulation dtype
  double epsilon;

  template <typename V>
  NormForwardArgs visit(V& v) const {
    return {.x = v(kIn.size(), x),
            .residual = v(kIn.says("residual"), residual),
            .sum = v(kOut, sum),
            .weight = v(kIn.small(), weight),
            .bias = v(kIn.small(), bias),
            .y = v(kOut, y),
            .mean = v(kOut.small(), mean),
            .rstd = v(kOut.small().ones(), rstd),
            .epsilon = epsilon};
  }
};

struct LayerNormForwardArgs : NormForwardArgs {
  static constexpr std::string_view name() { return "layer_norm_forward"; }
  template <typename V>
  LayerNormForwardArgs visit(V& v) const {
    return {NormForwardArgs::visit(v)};
  }
};
struct RmsNormForwardArgs : NormForwardArgs {
  static constexpr std::string_view name() { return "rms_norm_forward"; }
  template <typename V>
  RmsNormForwardArgs visit(V& v) const {
    return {NormForwardArgs::visit(v)};
  }
};

struct NormBackwardArgs {
  const Tensor& dy;                // (N, C)
  const Tensor* dsum = nullptr;    // (N, C): gradient that reaches the sum directly; added to dx
  const Tensor& x;                 // (N, C): what was normalised (the sum when fused)
  const Tensor& weight;            // (C)
  const Tensor* mean = nullptr;    // (N)
  const Tensor& rstd;              // (N)
  Tensor& dx;                      // (N, C); may be the same memory as dy
  Tensor* dweight = nullptr;       // (C), null when frozen
  Tensor* dbias = nullptr;         // (C)
  bool accumulate_weight = false;  // dweight += instead of =
  bool accumulate_bias = false;

  template <typename V>
  NormBackwardArgs visit(V& v) const {
    return {.dy = v(kIn.size(), dy),
            .dsum = v(kIn.says("dsum"), dsum),
            .x = v(kIn, x),
            .weight = v(kIn.small(), weight),
            .mean = v(kIn.small(), mean),
            .rstd = v(kIn.small().ones(), rstd),
            .dx = v(kOut, dx),
            .dweight = v((accumulate_weight ? kInOut : kOut).small().says("dweight"), dweight),
            .dbias = v((accumulate_bias ? kInOut : kOut).small().says("dbias"), dbias),
            .accumulate_weight = accumulate_weight,
            .accumulate_bias = accumulate_bias};
  }
};

struct LayerNormBackwardArgs : NormBackwardArgs {
  static constexpr std::string_view name() { return "layer_norm_backward"; }
  template <typename V>
  LayerNormBackwardArgs visit(V& v) const {
    return {NormBackwardArgs::visit(v)};
  }
};
struct RmsNormBackwardArgs : NormBackwardArgs {
  static constexpr std::string_view name() { return "rms_norm_backward"; }
  template <typename V>
  RmsNormBackwardArgs visit(V& v) const {
    return {NormBackwardArgs::visit(v)};
  }
};

// y = activation(x).
struct ActivationForwardArgs {
  Activation kind;
  const Tensor& x;
  Tensor& y;  // may be x

  static constexpr std::string_view name() { return "activation_forward"; }
  std::string words() const;
  template <typename V>
  ActivationForwardArgs visit(V& v) const {
    return {kind, v(kIn.size(), x), v(kOut, y)};
  }
};

// dx = dy * activation'(x); dbias [+]= the sums over the rows of dx, as SumRowsArgs adds them.
struct ActivationBackwardArgs {
  Activation kind;
  const Tensor& x;  // (..., C)
  const Tensor& dy;
  Tensor& dx;               // may be dy
  Tensor* dbias = nullptr;  // (C), any floating dtype; null: not wanted
  bool accumulate_bias = false;

  static constexpr std::string_view name() { return "activation_backward"; }
  std::string words() const;
  template <typename V>
  ActivationBackwardArgs visit(V& v) const {
    return {.kind = kind,
            .x = v(kIn.size(), x),
            .dy = v(kIn, dy),
            .dx = v(kOut, dx),
            .dbias = v((accumulate_bias ? kInOut : kOut).small().says("dbias"), dbias),
            .accumulate_bias = accumulate_bias};
  }
};

// y = activation(gate) * up, with kNone gate * up; all of one shape. Without `up` the rows of
// `gate` hold both, gate first: (..., 2 F), where y is (..., F).
struct GluForwardArgs {
  Activation kind;
  const Tensor& gate;
  const Tensor* up;
  Tensor& y;

  static constexpr std::string_view name() { return "glu_forward"; }
  std::string words() const;
  template <typename V>
  GluForwardArgs visit(V& v) const {
    return {kind, v(kIn.size(), gate), v(kIn, up), v(kOut, y)};
  }
};

// Without `up` and `dup` the rows of `gate` and `dgate` hold both.
struct GluBackwardArgs {
  Activation kind;
  const Tensor& gate;
  const Tensor* up;
  const Tensor& dy;
  Tensor& dgate;  // may share memory with gate or, of its shape, dy; so may dup
  Tensor* dup;

  static constexpr std::string_view name() { return "glu_backward"; }
  std::string words() const;
  template <typename V>
  GluBackwardArgs visit(V& v) const {
    return {kind, v(kIn.size(), gate), v(kIn, up), v(kIn, dy), v(kOut, dgate), v(kOut, dup)};
  }
};

// out = a + b; dtypes may differ, the sum is formed in the accumulation dtype.
struct AddArgs {
  const Tensor& a;
  const Tensor& b;
  Tensor& out;  // may be a or b

  static constexpr std::string_view name() { return "add"; }
  Cost cost() const;
  template <typename V>
  AddArgs visit(V& v) const {
    return {v(kIn.size(), a), v(kIn.size(), b), v(kOut.size(), out)};
  }
};

// Rotates the first 2 * (last extent of cos) channels of every head in place, channel i with
// channel i + half ("half-split", as Hugging Face stores Llama). Position = index in the sequence +
// first_position.
struct RopeArgs {
  HeadView x;
  const Tensor& cos;  // (positions, rotary_dim / 2), accumulation dtype
  const Tensor& sin;
  int64_t first_position = 0;
  bool inverse = false;  // rotate by the negative angle: the backward pass

  static constexpr std::string_view name() { return "rope"; }
  Cost cost() const;
  std::string words() const;
  template <typename V>
  RopeArgs visit(V& v) const {
    return {.x = v(kInOut.size(), x),
            .cos = v(kIn.small().ones(), cos),
            .sin = v(kIn.small().zeros(), sin),
            .first_position = first_position,
            .inverse = inverse};
  }
};

// Rows [first, first + T) of every sample of `to` = the T rows of `from`, head by head. The two
// must not overlap; one dtype, heads and head_dim.
struct CopyHeadsArgs {
  HeadView from;
  HeadView to;
  int64_t first;

  static constexpr std::string_view name() { return "copy_heads"; }
  Cost cost() const;
  std::string words() const;
  template <typename V>
  CopyHeadsArgs visit(V& v) const {
    return {v(kIn.size(), from), v(kOut, to), first};
  }
};

// y = x with elements zeroed or scaled; element index within the sample. Dropout is its own
// backward: pass dy as x.
struct DropoutArgs {
  Dropout draw;
  const Tensor& x;  // (B, ...)
  Tensor& y;        // may be x

  static constexpr std::string_view name() { return "dropout"; }
  template <typename V>
  DropoutArgs visit(V& v) const {
    return {draw.visit(v), v(kIn.size(), x), v(kOut, y)};
  }
};

// The least length of documents, alike but for a shorter last one, that leaves `pairs` pairs of a
// query and a key that it sees, itself included, in a row of `length` tokens.
int64_t document_length(int64_t pairs, int64_t length);

// softmax(scale * q k^T + key_bias + mask) v without a T x T tensor. Query head h reads key-value
// head h / (heads / kv_heads). The query at position i of Tq queries is at i + Tk - Tq among the
// keys; causal: keys j <= i; window w > 0: keys j > i - w. key_bias is added to all scores of a
// key: ALiBi, or -infinity to hide it (padding). first_key: query i of its sample sees keys
// j >= first_key[i] only, and of first_key and window the later counts. So documents that share a
// row do not see each other; kernels skip the tiles of other documents, and change no bit where
// first_key is 0. A query that sees no key gives all Tk keys, later
// ones too, the same weight: what a mask of the smallest finite number does (Hugging Face's eager
// attention), and gradients pass that softmax as they pass any other. Dropout of the weights:
// element index (h * Tq + i) * Tk + j of its sample.
struct AttentionArgs {
  HeadView q;        // T = Tq
  HeadView k;        // T = Tk or more
  HeadView v;        // T as k has
  int64_t keys = 0;  // Tk, where k and v have room for more (forward only); 0: T
  double scale;
  bool causal = true;
  int64_t window = 0;
  const Tensor* key_bias = nullptr;  // (B or 1, heads or 1, Tk or more), accumulation dtype
  bool hides_keys = true;            // key_bias may hold -infinity
  // (B, Tq), i32, within [0, Tk), not decreasing within a row; null: 0
  const Tensor* first_key = nullptr;
  int64_t pairs = 0;  // of a query and a key that first_key leaves, of all rows; 0: not known
  Dropout dropout;

  AttentionExtents extents() const;
  int64_t document() const;  // the length of documents that leave so many pairs; Tk: not known
  std::string words() const;
  template <typename V>
  AttentionArgs visit(V& v) const {
    return {.q = v(kIn.size(), q),
            .k = v(kIn.size(), k),
            .v = v(kIn, this->v),
            .keys = keys,
            .scale = scale,
            .causal = causal,
            .window = window,
            .key_bias = v(kIn.small().says(hides_keys ? "hiding bias" : "bias"), key_bias),
            .hides_keys = hides_keys,
            .first_key = v(kIn.documents(document()).says("documents"), first_key),
            .pairs = pairs,
            .dropout = dropout.visit(v)};
  }
};

struct AttentionForwardArgs {
  AttentionArgs in;
  Tensor& out;          // (B, Tq, heads * head_dim)
  Tensor& log_sum_exp;  // (B, heads, Tq), accumulation dtype

  static constexpr std::string_view name() { return "attention_forward"; }
  Cost cost() const;
  std::string words() const { return in.words(); }
  template <typename V>
  AttentionForwardArgs visit(V& v) const {
    return {.in = in.visit(v), .out = v(kOut, out), .log_sum_exp = v(kOut.small(), log_sum_exp)};
  }
};

struct AttentionBackwardArgs {
  AttentionArgs in;
  const Tensor& out;          // as forward wrote it
  const Tensor& log_sum_exp;  // as forward wrote it
  const Tensor& dout;         // (B, Tq, heads * head_dim)
  Tensor& delta;              // (B, heads, Tq), accumulation dtype: workspace, sum of dout * out
  HeadView dq;                // written, not accumulated
  HeadView dk;
  HeadView dv;

  static constexpr std::string_view name() { return "attention_backward"; }
  Cost cost() const;
  std::string words() const { return in.words(); }
  template <typename V>
  AttentionBackwardArgs visit(V& v) const {
    return {.in = in.visit(v),
            .out = v(kIn, out),
            .log_sum_exp = v(kIn.small(), log_sum_exp),
            .dout = v(kIn, dout),
            .delta = v(kOut.small(), delta),
            .dq = v(kOut, dq),
            .dk = v(kOut, dk),
            .dv = v(kOut, dv)};
  }
};

// y = table[tokens] (+ positions[first_position + t] when given).
struct EmbeddingForwardArgs {
  const Tensor& tokens;     // (B, T), i32
  const Tensor& table;      // (V, C)
  const Tensor* positions;  // (P, C)
  int64_t first_position;
  Tensor& y;  // (B, T, C)

  static constexpr std::string_view name() { return "embedding_forward"; }
  int64_t vocabulary() const;
  Cost cost() const;
  template <typename V>
  EmbeddingForwardArgs visit(V& v) const {
    Tensor& out = v(kOut.size(), y);
    const Tensor& rows = v(kIn.size(), table);
    return {v(kIn.indices(vocabulary()), tokens), rows, v(kIn.says("positions"), positions),
            first_position, out};
  }
};

// dtable (+)= rows of dy scattered by token, each row's sum in order of (b, t).
struct EmbeddingBackwardArgs {
  const Tensor& tokens;  // (B, T), i32
  const Tensor& dy;      // (B, T, C)
  Tensor& dtable;        // (V, C)
  bool accumulate;

  static constexpr std::string_view name() { return "embedding_backward"; }
  int64_t vocabulary() const;
  Cost cost() const;
  std::string words() const;
  template <typename V>
  EmbeddingBackwardArgs visit(V& v) const {
    const Tensor& gradient = v(kIn.size(), dy);
    Tensor& rows = v((accumulate ? kInOut : kOut).size(), dtable);
    return {v(kIn.indices(vocabulary()), tokens), gradient, rows, accumulate};
  }
};

// dpositions (+)= sum over b of dy at rows t; other rows 0.
struct PositionBackwardArgs {
  const Tensor& dy;    // (B, T, C)
  Tensor& dpositions;  // (P, C)
  bool accumulate;

  static constexpr std::string_view name() { return "position_backward"; }
  Cost cost() const;
  std::string words() const;
  template <typename V>
  PositionBackwardArgs visit(V& v) const {
    return {v(kIn.size(), dy), v((accumulate ? kInOut : kOut).size(), dpositions), accumulate};
  }
};

// Softmax cross-entropy over rows of logits, computed in their accumulation dtype. loss_sum += sum
// over labelled rows; dlogits = (softmax - onehot) * gradient_scale, 0 for ignored rows; may be the
// memory of logits. Beside logits of bf16 it is bf16. See [Note: padded rows].
struct CrossEntropyArgs {
  Tensor& logits;  // (N, V or more), f32, f64 or bf16; overwritten when dlogits shares its memory
  int64_t vocabulary = 0;     // V, where rows are longer; 0: all of a row
  const Tensor& labels;       // (N), i32; kIgnoreIndex: no loss
  Tensor& loss_sum;           // (), accumulation dtype
  Tensor* dlogits = nullptr;  // shape of logits, any floating dtype; null: loss only
  double gradient_scale = 1;
  const Tensor* loss_scale = nullptr;  // (), f32: a further factor of dlogits; null: 1

  static constexpr std::string_view name() { return "cross_entropy"; }
  int64_t columns() const;  // V
  Cost cost() const;
  std::string words() const;
  template <typename V>
  CrossEntropyArgs visit(V& v) const {
    return {.logits = v(kIn.size(), logits),
            .vocabulary = vocabulary,
            .labels = v(kIn.indices(columns()), labels),
            .loss_sum = v(kInOut.small(), loss_sum),
            .dlogits = v(kOut, dlogits),
            .gradient_scale = gradient_scale,
            .loss_scale = v(kIn.small().ones(), loss_scale)};
  }
};

}  // namespace fsdp
