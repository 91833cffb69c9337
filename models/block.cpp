// Composition of a transformer block from the ops; parameters are registered in the order in which
// forward reads them, which is their order in an FSDP unit.
#include "models/block.h"

#include <cmath>

#include "core/ops/elementwise.h"
#include "core/recompute.h"

namespace fsdp::models {

Layer::Layer(std::string name, std::string class_name, const BlockSpec& spec)
    : Module(std::move(name), std::move(class_name)), config_(spec.config), layer_(spec.layer) {}

ops::LinearWeights Layer::make_linear(const LinearSpec& linear) {
  double deviation = config_.initializer_range;
  if (linear.into_residual && config_.scaled_residual_init) {
    deviation /= std::sqrt(2.0 * static_cast<double>(config_.layers));
  }
  const bool out_in = config_.weight_layout == ops::WeightLayout::kOutIn;
  const Shape shape = out_in ? Shape{linear.out, linear.in} : Shape{linear.in, linear.out};
  Parameter& weight = add_parameter(linear.name + ".weight", shape, {0, deviation}, true);
  Parameter* bias = nullptr;
  if (linear.bias) bias = &add_parameter(linear.name + ".bias", Shape{linear.out}, {}, false);
  return {weight, bias, config_.weight_layout};
}

ops::NormWeights Layer::make_norm(const std::string& name) {
  const Shape shape = {config_.hidden};
  Parameter& weight = add_parameter(name + ".weight", shape, {1, 0}, false);
  Parameter* bias = nullptr;
  if (config_.norm == NormKind::kLayerNorm) {
    bias = &add_parameter(name + ".bias", shape, {}, false);
  }
  return {weight, bias, config_.norm_epsilon};
}

// ---------------------------------------------------------------------------- Attention

Attention::Attention(std::string name, const BlockSpec& spec)
    : Layer(std::move(name), "Attention", spec), rope_(spec.rope) {
  const int64_t q = config_.heads * config_.head_dim;
  const int64_t kv = config_.kv_heads * config_.head_dim;
  const auto input = [&](const char* part, int64_t out) {
    inputs_.push_back(
        make_linear({.name = part, .in = config_.hidden, .out = out, .bias = config_.qkv_bias}));
  };
  if (config_.packed_qkv) {
    input("qkv", q + 2 * kv);
  } else {
    input("q", q);
    input("k", kv);
    input("v", kv);
  }
  output_.emplace(make_linear({.name = "out",
                               .in = q,
                               .out = config_.hidden,
                               .bias = config_.attention_out_bias,
                               .into_residual = true}));
}

Tensor Attention::mix_heads(const Tensor& x, const ForwardContext& context) {
  const int64_t width = config_.head_dim;
  const bool packed = inputs_.size() == 1;
  std::vector<Tensor> tensors;
  for (const ops::LinearWeights& weights : inputs_) tensors.push_back(ops::linear(x, weights));
  const auto view = [&](size_t part, int64_t heads, int64_t packed_offset) {
    return HeadView{.tensor = &tensors[packed ? 0 : part],
                    .heads = heads,
                    .head_dim = width,
                    .offset = packed ? packed_offset : 0,
                    .head_stride = width};
  };
  const HeadView q = view(0, config_.heads, 0);
  const HeadView k = view(1, config_.kv_heads, config_.heads * width);
  const HeadView v = view(2, config_.kv_heads, (config_.heads + config_.kv_heads) * width);
  if (rope_) {
    for (const HeadView& rotated : {q, k}) {
      // In place: the views keep pointing at the tensor's slot.
      Tensor& slot = tensors[static_cast<size_t>(rotated.tensor - tensors.data())];
      slot = ops::rope(slot, rotated, *rope_);
    }
  }
  return ops::attention({.q = q,
                         .k = k,
                         .v = v,
                         .scale = config_.attention_scale(),
                         .dropout = ops::dropout_args(context, config_.attention_dropout, layer_,
                                                      ops::DropoutSite::kAttentionWeights)});
}

Tensor Attention::operator()(const Tensor& x, const ForwardContext& context) {
  return run(x, [&](const Tensor& input) {
    const Tensor y = ops::linear(mix_heads(input, context), *output_);
    return ops::dropout(y, ops::dropout_args(context, config_.residual_dropout, layer_,
                                             ops::DropoutSite::kAttentionOutput));
  });
}

// ---------------------------------------------------------------------------- MLP

Mlp::Mlp(std::string name, const BlockSpec& spec) : Layer(std::move(name), "Mlp", spec) {
  const auto input = [&](const char* part) {
    inputs_.push_back(make_linear(
        {.name = part, .in = config_.hidden, .out = config_.ffn, .bias = config_.mlp_bias}));
  };
  if (config_.mlp == MlpKind::kSwiGlu) input("gate");
  input("up");
  output_.emplace(make_linear({.name = "down",
                               .in = config_.ffn,
                               .out = config_.hidden,
                               .bias = config_.mlp_bias,
                               .into_residual = true}));
}

Tensor Mlp::operator()(const Tensor& x) {
  return run(x, [&](const Tensor& input) {
    const Tensor inner =
        config_.mlp == MlpKind::kSwiGlu
            ? ops::swiglu(ops::linear(input, inputs_[0]), ops::linear(input, inputs_[1]))
            : ops::linear(input, inputs_[0], config_.activation);
    return ops::linear(inner, *output_);
  });
}

// ---------------------------------------------------------------------------- Block

Block::Block(std::string name, const BlockSpec& spec)
    : Layer(std::move(name), spec.config.block_class, spec) {
  attention_norm_.emplace(make_norm("attention_norm"));
  attention_ = &add_child<Attention>("attention", spec);
  mlp_norm_.emplace(make_norm("mlp_norm"));
  mlp_ = &add_child<Mlp>("mlp", spec);
}

Tensor Block::operator()(const Tensor& x, const ForwardContext& context) {
  return run(x, [&](const Tensor& input) {
    Tape* tape = attention_norm_->weight.tape();
    if (recompute_ == RecomputeMode::kFull) {
      return recompute(*tape, input,
                       [this, context](const Tensor& again) { return compute(again, context); });
    }
    if (recompute_ == RecomputeMode::kNone) return compute(input, context);
    const Tape::Selective selective(*tape);
    return compute(input, context);
  });
}

Tensor Block::compute(const Tensor& x, const ForwardContext& context) {
  const ops::NormOutput before = ops::norm(x, Tensor(), *attention_norm_);
  const Tensor mixed = (*attention_)(before.y, context);
  const ops::NormOutput between = ops::norm(mixed, before.stream, *mlp_norm_);
  const Tensor inner = ops::dropout(
      (*mlp_)(between.y),
      ops::dropout_args(context, config_.residual_dropout, layer_, ops::DropoutSite::kMlpOutput));
  return ops::add(between.stream, inner);
}

}  // namespace fsdp::models
