// Lines of the table: the matrix products of a training step, and attention.
#include <cmath>

#include <fmt/format.h>

#include "tools/bench/bench_step.h"
#include "tools/bench/kernel_case.h"

namespace fsdp::tools {
namespace {

std::string text(const ops::MatmulExtents& e) {
  return fmt::format("{} x {} x {}{}", e.m, e.n, e.k,
                     e.result == e.operand ? "" : fmt::format(" -> {}", name_of(e.result)));
}

// "a^T b": the product of a weight gradient
std::string form_of(const ops::MatmulExtents& e) {
  return fmt::format("{}{}{}", e.transpose_a ? "a^T " : "a ", e.transpose_b ? "b^T" : "b",
                     e.accumulate ? ", added" : "");
}

// With bias and activation behind the product, as a linear layer that is asked for both.
KernelCase product_with_activation(const ops::MatmulExtents& e) {
  const auto prepare = [e](KernelInputs& inputs) -> KernelRun {
    const Tensor a = inputs.normal(Shape{e.m, e.k}, e.operand);
    const Tensor b = inputs.normal(Shape{e.k, e.n}, e.operand);
    const Tensor bias = inputs.normal(Shape{e.n}, e.operand);
    const Tensor c = inputs.empty(Shape{e.m, e.n}, e.result);
    const Tensor before = inputs.empty(Shape{e.m, e.n}, e.result);
    return [=](Backend& backend, Stream& stream) {
      Tensor out = c, pre_activation = before;
      backend.matmul(stream, {.a = a,
                              .b = b,
                              .c = out,
                              .bias = &bias,
                              .activation = Activation::kGeluTanh,
                              .pre_activation = &pre_activation});
    };
  };
  ops::Cost cost = ops::matmul_cost(e);
  cost.bytes += e.m * e.n * static_cast<int64_t>(size_of(e.result));  // pre_activation
  return {"matmul", "with bias and gelu", text(e), cost, {}, prepare};
}

// ---------------------------------------------------------------------------- Attention

// Where q, k and v lie: in rows of their own, or in those of one tensor as the model packs them.
struct AttentionLayout {
  bool packed = false, by_head = false;
};

struct AttentionSizes {
  ops::AttentionExtents extents;
  AttentionLayout layout;
  DType dtype = DType::kF32;
  bool key_bias = false;  // ALiBi
};

// The tensors of one set; views point into it, so it stays where it is.
struct AttentionSet {
  std::vector<Tensor> qkv, gradients;  // of q, k, v: one tensor when packed, else three
  Tensor key_bias, out, log_sum_exp, dout, delta;
};

HeadView view_of(const AttentionSizes& sizes, const std::vector<Tensor>& tensors, size_t which) {
  const ops::AttentionExtents& e = sizes.extents;
  const int64_t heads = which == 0 ? e.heads : e.kv_heads;
  HeadView view = {.heads = heads, .head_dim = e.head_dim, .head_stride = e.head_dim};
  if (!sizes.layout.packed) {
    view.tensor = &tensors[which];
    return view;
  }
  view.tensor = &tensors[0];
  const auto place = static_cast<int64_t>(which);
  if (sizes.layout.by_head) {  // [head, (q, k, v), d]
    view.offset = place * e.head_dim;
    view.head_stride = 3 * e.head_dim;
  } else if (place > 0) {  // [q | k | v]
    view.offset = (e.heads + (place - 1) * e.kv_heads) * e.head_dim;
  }
  return view;
}

std::vector<Tensor> make_heads(const AttentionSizes& sizes, KernelInputs& inputs) {
  const ops::AttentionExtents& e = sizes.extents;
  const int64_t q = e.heads * e.head_dim, kv = e.kv_heads * e.head_dim;
  if (sizes.layout.packed) {
    return {inputs.normal(Shape{e.batch, e.queries, q + 2 * kv}, sizes.dtype)};
  }
  return {inputs.normal(Shape{e.batch, e.queries, q}, sizes.dtype),
          inputs.normal(Shape{e.batch, e.keys, kv}, sizes.dtype),
          inputs.normal(Shape{e.batch, e.keys, kv}, sizes.dtype)};
}

AttentionArgs arguments(const AttentionSizes& sizes, const AttentionSet& set) {
  return {.q = view_of(sizes, set.qkv, 0),
          .k = view_of(sizes, set.qkv, 1),
          .v = view_of(sizes, set.qkv, 2),
          .scale = 1 / std::sqrt(static_cast<double>(sizes.extents.head_dim)),
          .causal = sizes.extents.causal,
          .key_bias = sizes.key_bias ? &set.key_bias : nullptr,
          .hides_keys = false};
}

std::shared_ptr<AttentionSet> make_set(const AttentionSizes& sizes, KernelInputs& inputs) {
  const ops::AttentionExtents& e = sizes.extents;
  const DType wide = accumulation_dtype(sizes.dtype);
  auto set = std::make_shared<AttentionSet>();
  set->qkv = make_heads(sizes, inputs);
  if (sizes.key_bias) set->key_bias = inputs.normal(Shape{1, e.heads, e.keys}, wide);
  set->out = inputs.empty(Shape{e.batch, e.queries, e.heads * e.head_dim}, sizes.dtype);
  set->log_sum_exp = inputs.empty(Shape{e.batch, e.heads, e.queries}, wide);
  return set;
}

KernelRun forward_run(const AttentionSizes& sizes, std::shared_ptr<AttentionSet> set) {
  return [sizes, set](Backend& backend, Stream& stream) {
    backend.attention_forward(
        stream, {.in = arguments(sizes, *set), .out = set->out, .log_sum_exp = set->log_sum_exp});
  };
}

KernelRun backward_run(const AttentionSizes& sizes, KernelInputs& inputs) {
  auto set = make_set(sizes, inputs);
  forward_run(sizes, set)(inputs.backend(), inputs.backend().compute_stream());  // out, log_sum_exp
  set->gradients = make_heads(sizes, inputs);
  set->dout = inputs.normal(set->out.shape(), sizes.dtype);
  set->delta = inputs.empty(set->log_sum_exp.shape(), set->log_sum_exp.dtype());
  return [sizes, set](Backend& backend, Stream& stream) {
    backend.attention_backward(stream, {.in = arguments(sizes, *set),
                                        .out = set->out,
                                        .log_sum_exp = set->log_sum_exp,
                                        .dout = set->dout,
                                        .delta = set->delta,
                                        .dq = view_of(sizes, set->gradients, 0),
                                        .dk = view_of(sizes, set->gradients, 1),
                                        .dv = view_of(sizes, set->gradients, 2)});
  };
}

std::string text(const ops::AttentionExtents& e) {
  const std::string heads = e.kv_heads == e.heads ? fmt::format("{}", e.heads)
                                                  : fmt::format("{}/{}", e.heads, e.kv_heads);
  return fmt::format("{} x {} of {}, {} heads of {}", e.batch, e.queries, e.keys, heads,
                     e.head_dim);
}

}  // namespace

KernelCase product_line(const std::string& variant, const ops::MatmulExtents& e) {
  const auto prepare = [e](KernelInputs& inputs) -> KernelRun {
    const Tensor a = inputs.normal(e.a(), e.operand), b = inputs.normal(e.b(), e.operand);
    const Tensor c = inputs.normal(e.c(), e.result);
    return [=](Backend& backend, Stream& stream) {
      Tensor out = c;
      backend.matmul(stream, {.a = a,
                              .b = b,
                              .c = out,
                              .transpose_a = e.transpose_a,
                              .transpose_b = e.transpose_b,
                              .accumulate = e.accumulate});
    };
  };
  return {"matmul", variant, text(e), ops::matmul_cost(e), {}, prepare};
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
  table.push_back(product_with_activation({.m = extents.batch * extents.length,
                                           .n = model.ffn,
                                           .k = model.hidden,
                                           .operand = extents.compute,
                                           .result = extents.compute}));
}

// Causal, without window and dropout.
void add_attention(const KernelExtents& extents, std::vector<KernelCase>& table) {
  const models::ModelConfig& model = extents.model;
  AttentionSizes sizes = {.extents = {.batch = extents.batch,
                                      .heads = model.heads,
                                      .kv_heads = model.kv_heads,
                                      .queries = extents.length,
                                      .keys = extents.length,
                                      .head_dim = model.head_dim},
                          .layout = {.packed = model.packed_qkv, .by_head = model.packed_by_head},
                          .dtype = extents.compute,
                          .key_bias = model.positions == models::PositionKind::kAlibi};
  const DType dtype = extents.compute;
  const bool tensor_cores = size_of(dtype) == 2;
  const auto add_forward = [&](const char* variant, KernelBar bar) {
    table.push_back(
        {"attention_forward", variant, text(sizes.extents),
         ops::attention_forward_cost(sizes.extents, dtype), bar,
         [sizes](KernelInputs& inputs) { return forward_run(sizes, make_set(sizes, inputs)); }});
  };
  add_forward("", tensor_cores ? kAttentionForwardBar : KernelBar{});
  table.push_back({"attention_backward", "", text(sizes.extents),
                   ops::attention_backward_cost(sizes.extents, dtype),
                   tensor_cores ? kAttentionBackwardBar : KernelBar{},
                   [sizes](KernelInputs& inputs) { return backward_run(sizes, inputs); }});
  // A token is generated: one query, and keys and values of all before it.
  sizes.extents.queries = 1;
  sizes.layout = {};
  add_forward("of one query", kStreamingBar);
}

}  // namespace fsdp::tools
