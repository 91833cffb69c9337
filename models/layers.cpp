// Parameters of the leaves and the op that each runs.
#include "models/layers.h"

#include <cmath>

#include "core/ops/elementwise.h"

namespace fsdp::models {
namespace {

bool out_in(const Linear::Spec& spec) { return spec.layout == ops::WeightLayout::kOutIn; }

std::string norm_class(const ModelConfig& config) {
  return config.norm == NormKind::kLayerNorm ? "LayerNorm" : config.class_prefix + "RMSNorm";
}

}  // namespace

Linear::Linear(std::string name, const Spec& spec)
    : Module(std::move(name), out_in(spec) ? "Linear" : "Conv1D"),
      weights_{
          add_parameter("weight",
                        out_in(spec) ? Shape{spec.out, spec.in} : Shape{spec.in, spec.out},
                        spec.initial_weight, true),
          spec.bias ? &add_parameter("bias", Shape{spec.out}, spec.initial_bias, false) : nullptr,
          spec.layout} {
  weights_.weight.set_role(spec.role);
}

Linear::Linear(std::string name, Parameter& weight, bool bias)
    : Module(std::move(name), "Linear"),
      weights_{weight,
               bias ? &add_parameter("bias", Shape{weight.shape()[0]}, {}, false) : nullptr} {
  share_parameter(weight);
}

Tensor Linear::operator()(const Tensor& x, const ForwardContext& context, Activation activation) {
  return run(x, [&](const Tensor& input) {
    if (!lora_) return ops::linear(input, weights_, activation);
    return ops::activate(lora_->add_to(ops::linear(input, weights_), input, context), activation);
  });
}

void Linear::keep_together(const std::vector<Linear*>& layers) {
  for (size_t i = 1; i < layers.size(); ++i) {
    const ops::LinearWeights &before = layers[i - 1]->weights_, &weights = layers[i]->weights_;
    weights.weight.set_predecessor(&before.weight);
    if (weights.bias) weights.bias->set_predecessor(before.bias);
  }
}

std::vector<Tensor> Linear::outputs(const std::vector<Linear*>& layers, const Tensor& x,
                                    const ForwardContext& context) {
  std::vector<Tensor> out;
  for (Linear* layer : layers) out.push_back((*layer)(x, context));
  return out;
}

std::vector<Tensor> Linear::joined_outputs(const std::vector<Linear*>& layers, const Tensor& x,
                                           const ForwardContext& context) {
  std::vector<ops::LinearWeights> weights;
  bool adapted = false;
  for (const Linear* layer : layers) {
    weights.push_back(layer->weights_);
    adapted = adapted || layer->lora_;
  }
  const bool joined = layers.size() > 1 && !adapted && ops::side_by_side(weights);
  if (!joined) return outputs(layers, x, context);
  // No layer is a unit by itself: there are no hooks to run.
  return {ops::linear(x, weights)};
}

// A starts as kaiming_uniform_(a=sqrt(5)) makes it: uniform within 1 / sqrt(in).
void Linear::add_lora(const LoraRank& rank, double dropout, int64_t number) {
  FSDP_CHECK(!lora_, "[lora] {}: has a low-rank term already", name());
  const Initializer uniform = {.bound = 1 / std::sqrt(static_cast<double>(in()))};
  Parameter& a = add_parameter("lora_A.weight", Shape{rank.r, in()}, uniform, true);
  Parameter& b = add_parameter("lora_B.weight", Shape{out(), rank.r}, {}, true);
  lora_.emplace(LoraTerm{a, b, rank.scale, dropout, number});
}

Tensor Linear::cross_entropy(const Tensor& h, const Tensor& labels, double gradient_scale,
                             const Tensor* loss_scale, const ops::HeadOptions& options) {
  return run(h, [&](const Tensor& input) {
    return ops::linear_cross_entropy(input, weights_.weight, labels, gradient_scale, loss_scale,
                                     weights_.bias, options);
  });
}

Norm::Norm(std::string name, const ModelConfig& config)
    : Module(std::move(name), norm_class(config)),
      weights_{add_parameter("weight", Shape{config.hidden}, {1, 0}, false),
               config.norm == NormKind::kLayerNorm
                   ? &add_parameter("bias", Shape{config.hidden}, {}, false)
                   : nullptr,
               config.norm_epsilon} {}

ops::NormOutput Norm::operator()(const Tensor& x, const Tensor& residual) {
  Tensor stream;
  Tensor y = run(x, [&](const Tensor& input) {
    const ops::NormOutput output = ops::norm(input, cast_input(residual), weights_);
    stream = output.stream;
    return output.y;
  });
  return {cast_output(stream), y};
}

Embedding::Embedding(std::string name, int64_t rows, const ModelConfig& config)
    : Module(std::move(name), "Embedding"),
      options_{.scale = config.embedding_scale(),
               .first_position = config.position_offset,
               .padding_row = config.padding_row},
      table_(add_parameter("weight", Shape{rows, config.hidden}, {0, config.initializer_range},
                           true)) {
  table_.set_role(ParameterRole::kEmbedding);
}

Tensor Embedding::operator()(const Tensor& tokens, Embedding* positions,
                             const Tensor* position_ids) {
  return run(Tensor(), [&](const Tensor&) {
    if (!positions) return ops::embedding(tokens, table_, nullptr, options_);
    return positions->run(Tensor(), [&](const Tensor&) {
      ops::EmbeddingOptions options = options_;
      options.position_ids = position_ids;
      return ops::embedding(tokens, table_, &positions->table_, options);
    });
  });
}

}  // namespace fsdp::models
