// Walks through a step as the model does and adds up.
#include "tools/predict/step_cost.h"

#include <algorithm>

#include "core/ops/cross_entropy.h"

namespace fsdp::tools {
namespace {

using models::ModelConfig;

class StepCounter {
 public:
  explicit StepCounter(const StepExtents& step)
      : step_(step), c_(step.model), rows_(step.batch * step.length) {}

  StepCost count() {
    embedding();
    attention();
    mlp();
    norms();
    head();
    optimizer();
    return std::move(cost_);
  }

 private:
  void pass(const std::string& kernel, ops::Cost each, int64_t count) {
    pass_in_parts(kernel, each * count, count);
  }

  void pass_in_parts(const std::string& kernel, ops::Cost all, int64_t count) {
    const auto found = std::find_if(cost_.passes.begin(), cost_.passes.end(),
                                    [&](const StepPass& p) { return p.kernel == kernel; });
    StepPass& p = found != cost_.passes.end() ? *found : cost_.passes.emplace_back(StepPass{kernel});
    p.bytes += all.bytes;
    p.count += count;
  }

  void product(const std::string& name, ops::MatmulExtents extents, int64_t count) {
    cost_.products.push_back({name, extents, count});
  }

  // Forward, and backward's two products; see core/ops/linear.cpp.
  void linear(const std::string& name, int64_t in, int64_t out, bool bias) {
    const bool out_in = c_.weight_layout == ops::WeightLayout::kOutIn;
    ops::MatmulExtents e = {.m = rows_, .n = out, .k = in, .transpose_b = out_in};
    e.operand = e.result = step_.compute;
    product(name + " forward", e, c_.layers);
    std::swap(e.n, e.k);
    e.transpose_b = !out_in;
    product(name + " input gradient", e, c_.layers);
    e = {.m = out_in ? out : in, .n = out_in ? in : out, .k = rows_, .transpose_a = true};
    e.operand = step_.compute;
    e.result = step_.gradient;
    product(name + " weight gradient", e, c_.layers);
    if (bias) pass("sum_rows", ops::sum_rows_cost(rows_ * out, step_.compute), c_.layers);
  }

  void embedding() {
    const int64_t elements = rows_ * c_.hidden;
    const bool learned = c_.positions == models::PositionKind::kLearned;
    const int64_t positions = learned ? step_.length * c_.hidden : 0;
    const int64_t stored = c_.tied_head ? 0 : c_.vocabulary * c_.hidden;
    pass("embedding_forward", ops::embedding_forward_cost(elements, positions, step_.compute), 1);
    pass("embedding_backward",
         ops::embedding_backward_cost(elements, stored, step_.compute, step_.gradient), 1);
    if (!learned) return;
    pass("position_backward",
         ops::position_backward_cost(elements, c_.max_positions * c_.hidden, step_.compute,
                                     step_.gradient),
         1);
  }

  void attention() {
    const int64_t q = c_.heads * c_.head_dim, kv = c_.kv_heads * c_.head_dim;
    if (c_.packed_qkv) {
      linear("qkv", c_.hidden, q + 2 * kv, c_.qkv_bias);
    } else {
      linear("q", c_.hidden, q, c_.qkv_bias);
      linear("k", c_.hidden, kv, c_.qkv_bias);
      linear("v", c_.hidden, kv, c_.qkv_bias);
    }
    if (c_.positions == models::PositionKind::kRope) {
      const int64_t rotated = rows_ * c_.rotary_dim();
      pass("rope", ops::rope_cost(rotated * c_.heads, step_.compute), 2 * c_.layers);
      pass("rope", ops::rope_cost(rotated * c_.kv_heads, step_.compute), 2 * c_.layers);
    }
    const ops::AttentionExtents e = {.batch = step_.batch,
                                     .heads = c_.heads,
                                     .kv_heads = c_.kv_heads,
                                     .queries = step_.length,
                                     .keys = step_.length,
                                     .head_dim = c_.head_dim};
    cost_.attention_flops = (ops::attention_forward_cost(e, step_.compute).flops +
                             ops::attention_backward_cost(e, step_.compute).flops) *
                            c_.layers;
    linear("attention out", q, c_.hidden, c_.attention_out_bias);
  }

  void mlp() {
    const int64_t inner = rows_ * c_.ffn;
    const DType dtype = step_.compute;
    if (c_.mlp == models::MlpKind::kGated) {
      linear("gate", c_.hidden, c_.ffn, c_.mlp_bias);
      pass("glu_forward", ops::glu_forward_cost(inner, dtype), c_.layers);
      pass("glu_backward", ops::glu_backward_cost(inner, dtype), c_.layers);
    } else {
      pass("activation_forward", ops::activation_forward_cost(inner, dtype), c_.layers);
      pass("activation_backward", ops::activation_backward_cost(inner, dtype), c_.layers);
    }
    linear("up", c_.hidden, c_.ffn, c_.mlp_bias);
    linear("down", c_.ffn, c_.hidden, c_.mlp_bias);
    const int64_t adds = c_.parallel_residual ? 2 : 1;  // the other is part of a norm
    pass("add", ops::add_cost(rows_ * c_.hidden, dtype), adds * c_.layers);
  }

  // Two a block, the second one with the residual add unless both norm the same stream, the final
  // one, and where there is one that of the embedding.
  void norms() {
    const int64_t elements = rows_ * c_.hidden;
    const std::string name = c_.norm == models::NormKind::kRmsNorm ? "rms_norm" : "layer_norm";
    const DType dtype = step_.compute;
    const int64_t outer = c_.embedding_norm ? 2 : 1;
    const int64_t fused = c_.parallel_residual ? 0 : c_.layers;
    pass(name + "_forward", ops::norm_forward_cost(elements, dtype, false),
         2 * c_.layers - fused + outer);
    pass(name + "_forward", ops::norm_forward_cost(elements, dtype, true), fused);
    pass(name + "_backward", ops::norm_backward_cost(elements, dtype, true), 2 * c_.layers);
    pass(name + "_backward", ops::norm_backward_cost(elements, dtype, false), outer);
  }

  // In chunks of rows; see core/ops/cross_entropy.cpp.
  void head() {
    const int64_t chunk = ops::head_chunk_rows(rows_, c_.vocabulary);
    head_chunks("head", chunk, rows_ / chunk, false);
    if (rows_ % chunk > 0) head_chunks("head's last rows", rows_ % chunk, 1, true);
  }

  void head_chunks(const std::string& name, int64_t rows, int64_t count, bool accumulate) {
    const int64_t width = c_.hidden, V = c_.vocabulary, row = ops::logits_row(V);
    const DType dtype = step_.compute;
    product(name + " forward", {.m = rows, .n = V, .k = width, .transpose_b = true,
                                .operand = dtype, .result = accumulation_dtype(dtype),
                                .row_c = row}, count);
    product(name + " input gradient", {.m = rows, .n = width, .k = V, .operand = dtype,
                                       .result = dtype, .row_a = row}, count);
    ops::MatmulExtents e = {.m = V, .n = width, .k = rows, .transpose_a = true,
                            .accumulate = accumulate, .operand = dtype, .result = step_.gradient,
                            .row_a = row};
    product(name + " weight gradient", e, accumulate ? count : 1);
    e.accumulate = true;
    if (!accumulate && count > 1) product(name + " weight gradient, added", e, count - 1);
    pass("cross_entropy", ops::cross_entropy_cost(rows * V, dtype), count);
  }

  void optimizer() {
    const int64_t parameters = c_.parameter_count() / step_.shards;
    const DType master = accumulation_dtype(step_.compute);
    const bool copy = step_.shards == 1 && step_.compute != master;
    const int64_t units = c_.layers + 1;  // a flat shard each
    pass_in_parts("power_sum", ops::power_sum_cost(parameters, master), units);
    const auto states = static_cast<int64_t>(optim::state_names(step_.optimizer).size());
    pass_in_parts(std::string(optim::name_of(step_.optimizer.kind)),
                  ops::shard_update_cost(parameters, states, step_.compute, master, copy), units);
  }

  const StepExtents& step_;
  const ModelConfig& c_;
  int64_t rows_;
  StepCost cost_;
};

}  // namespace

int64_t StepCost::product_flops() const {
  int64_t sum = 0;
  for (const StepProduct& p : products) sum += ops::matmul_cost(p.extents).flops * p.count;
  return sum;
}

int64_t StepCost::pass_bytes() const {
  int64_t sum = 0;
  for (const StepPass& p : passes) sum += p.bytes;
  return sum;
}

StepCost step_cost(const StepExtents& step) { return StepCounter(step).count(); }

}  // namespace fsdp::tools
