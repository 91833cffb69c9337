// Lines of the table: the matrix products of a training step, and attention.
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "core/flat_layout.h"
#include "core/layer_args.h"
#include "tools/bench/bench_step.h"
#include "tools/bench/kernel_case.h"

namespace fsdp::tools {
namespace {

std::string text(const MatmulExtents& e) {
  return fmt::format("{} x {} x {}{}", e.m, e.n, e.k,
                     e.result == e.operand ? "" : fmt::format(" -> {}", name_of(e.result)));
}

// "a^T b": the product of a weight gradient
std::string form_of(const MatmulExtents& e) {
  return fmt::format("{}{}{}", e.transpose_a ? "a^T " : "a ", e.transpose_b ? "b^T" : "b",
                     e.accumulate ? ", added" : "");
}

// `activation`: with bias and activation behind the product, as a linear layer that is asked for
// both.
KernelCase product(const std::string& variant, const MatmulExtents& e, Activation activation) {
  meta::MetaBackend meta;
  const Tensor a = Tensor::empty(meta, e.a(), e.operand), b = Tensor::empty(meta, e.b(), e.operand);
  const Tensor bias = Tensor::empty(meta, Shape{e.n}, e.operand);
  Tensor c = Tensor::empty(meta, e.c(), e.result), before = Tensor::empty(meta, e.c(), e.result);
  const bool plain = activation == Activation::kNone;
  const MatmulArgs args = {.a = a,
                           .b = b,
                           .c = c,
                           .transpose_a = e.transpose_a,
                           .transpose_b = e.transpose_b,
                           .accumulate = e.accumulate,
                           .bias = plain ? nullptr : &bias,
                           .activation = activation,
                           .pre_activation = plain ? nullptr : &before};
  return {variant, text(e), {}, meta::kernel_call(args)};
}

// Causal, without window and dropout.
struct AttentionSizes {
  int64_t batch = 0, heads = 0, kv_heads = 0, queries = 0, keys = 0, head_dim = 0;
  // Where q, k and v lie: in rows of their own, or in the rows of one tensor as the model packs
  // them.
  bool packed = false, by_head = false;
  DType dtype = DType::kF32;
  bool key_bias = false;  // ALiBi

  std::string text() const {
    const std::string names =
        kv_heads == heads ? fmt::format("{}", heads) : fmt::format("{}/{}", heads, kv_heads);
    return fmt::format("{} x {} of {}, {} heads of {}", batch, queries, keys, names, head_dim);
  }
};

// q, k and v, or their gradients.
class Heads {
 public:
  Heads(Backend& backend, const AttentionSizes& sizes) : sizes_(sizes) {
    const int64_t q = sizes.heads * sizes.head_dim, kv = sizes.kv_heads * sizes.head_dim;
    const auto rows = [&](int64_t tokens, int64_t width) {
      return Tensor::empty(backend, Shape{sizes.batch, tokens, width}, sizes.dtype);
    };
    if (sizes.packed) tensors_[0] = rows(sizes.queries, q + 2 * kv);
    if (!sizes.packed)
      tensors_ = {rows(sizes.queries, q), rows(sizes.keys, kv), rows(sizes.keys, kv)};
  }
  HeadView view(size_t which) const {
    const AttentionSizes& e = sizes_;
    HeadView view = {.tensor = &tensors_[e.packed ? 0 : which],
                     .heads = which == 0 ? e.heads : e.kv_heads,
                     .head_dim = e.head_dim,
                     .head_stride = e.head_dim};
    if (!e.packed) return view;
    const auto place = static_cast<int64_t>(which);
    if (e.by_head) {  // [head, (q, k, v), d]
      view.offset = place * e.head_dim;
      view.head_stride = 3 * e.head_dim;
    } else if (place > 0) {  // [q | k | v]
      view.offset = (e.heads + (place - 1) * e.kv_heads) * e.head_dim;
    }
    return view;
  }

 private:
  AttentionSizes sizes_;
  std::array<Tensor, 3> tensors_;  // one when packed
};

void add_attention(const AttentionSizes& e, const char* variant, KernelBar forward,
                   const KernelBar* backward, std::vector<KernelCase>& table) {
  meta::MetaBackend meta;
  const DType wide = accumulation_dtype(e.dtype);
  const Heads qkv(meta, e), gradients(meta, e);
  const Tensor key_bias = Tensor::empty(meta, Shape{1, e.heads, e.keys}, wide);
  Tensor out = Tensor::empty(meta, Shape{e.batch, e.queries, e.heads * e.head_dim}, e.dtype);
  const Tensor dout = Tensor::empty(meta, out.shape(), e.dtype);
  Tensor sums = Tensor::empty(meta, Shape{e.batch, e.heads, e.queries}, wide);
  Tensor delta = Tensor::empty(meta, sums.shape(), wide);
  const AttentionArgs in = {.q = qkv.view(0),
                            .k = qkv.view(1),
                            .v = qkv.view(2),
                            .scale = 1 / std::sqrt(static_cast<double>(e.head_dim)),
                            .key_bias = e.key_bias ? &key_bias : nullptr,
                            .hides_keys = false};
  table.push_back(
      {variant, e.text(), forward, meta::kernel_call(AttentionForwardArgs{in, out, sums})});
  if (!backward) return;
  const AttentionBackwardArgs args = {.in = in,
                                      .out = out,
                                      .log_sum_exp = sums,
                                      .dout = dout,
                                      .delta = delta,
                                      .dq = gradients.view(0),
                                      .dk = gradients.view(1),
                                      .dv = gradients.view(2)};
  table.push_back({variant, e.text(), *backward, meta::kernel_call(args)});
}

}  // namespace

KernelCase product_line(const std::string& variant, const MatmulExtents& e) {
  return product(variant, e, Activation::kNone);
}

void add_products(const KernelExtents& extents, std::vector<KernelCase>& table) {
  const StepCost cost = step_cost({.model = extents.model,
                                   .batch = extents.batch,
                                   .length = extents.length,
                                   .dtype = extents.compute},
                                  /*ranks=*/1);
  for (const StepProduct& p : cost.products)
    table.push_back(product_line(form_of(p.extents), p.extents));
  const models::ModelConfig& model = extents.model;
  table.push_back(product("with bias and gelu",
                          {.m = extents.batch * extents.length,
                           .n = model.ffn,
                           .k = model.hidden,
                           .operand = extents.compute,
                           .result = extents.compute},
                          Activation::kGeluTanh));
}

void add_attention(const KernelExtents& extents, std::vector<KernelCase>& table) {
  const models::ModelConfig& model = extents.model;
  // The weights of q, k and v are one product then; see core/flat_layout.h.
  const bool joined = model.hidden * model.head_dim % kFlatAlignment == 0;
  AttentionSizes sizes = {.batch = extents.batch,
                          .heads = model.heads,
                          .kv_heads = model.kv_heads,
                          .queries = extents.length,
                          .keys = extents.length,
                          .head_dim = model.head_dim,
                          .packed = model.packed_qkv || joined,
                          .by_head = model.packed_by_head,
                          .dtype = extents.compute,
                          .key_bias = model.positions == models::PositionKind::kAlibi};
  const bool tensor_cores = size_of(extents.compute) == 2;
  const KernelBar backward = tensor_cores ? kAttentionBackwardBar : KernelBar{};
  add_attention(sizes, "", tensor_cores ? kAttentionForwardBar : KernelBar{}, &backward, table);
  // A token is generated: one query, and keys and values of all before it.
  sizes.queries = 1;
  sizes.packed = false;
  add_attention(sizes, "of one query", kStreamingBar, nullptr, table);
}

}  // namespace fsdp::tools
