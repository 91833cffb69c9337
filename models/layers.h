// The leaves of a model's module tree: linear layer, norm, embedding. Each holds its weights, with
// the class name and the place that Hugging Face gives them (wrap policies look at both), and runs
// the op that uses them. Next: block.h.
#pragma once

#include <optional>

#include "core/module.h"
#include "core/ops/cross_entropy.h"
#include "core/ops/embedding.h"
#include "core/ops/linear.h"
#include "core/ops/norm.h"
#include "models/config.h"
#include "models/lora.h"

namespace fsdp::models {

class Linear final : public Module {
 public:
  struct Spec {
    int64_t in = 0;
    int64_t out = 0;
    bool bias = false;
    Initializer initial_weight = {.deviation = 0.02};
    Initializer initial_bias = {};
    ops::WeightLayout layout = ops::WeightLayout::kOutIn;
    ParameterRole role = ParameterRole::kHiddenMatrix;  // of the weight
  };
  Linear(std::string name, const Spec& spec);
  // Tied to another module's weight, (out, in); a bias is its own.
  Linear(std::string name, Parameter& weight, bool bias);

  Tensor operator()(const Tensor& x,  // (..., in)
                    const ForwardContext& context,
                    Activation activation = Activation::kNone);  // -> (..., out)
  // Asks for flat buffers in which the layers' weights are neighbours, and their biases.
  static void keep_together(const std::vector<Linear*>& layers);
  // The layers' outputs for one input, one tensor each, wherever their parameters lie.
  static std::vector<Tensor> outputs(const std::vector<Linear*>& layers,
                                     const Tensor& x,  // (..., in)
                                     const ForwardContext& context);
  // The same for a caller that takes both forms: where the parameters lie side by side and no layer
  // has a low-rank term, one product gives one tensor with all outputs in its rows.
  static std::vector<Tensor> joined_outputs(const std::vector<Linear*>& layers,
                                            const Tensor& x,  // (..., in)
                                            const ForwardContext& context);
  // As the head of a language model; see ops::linear_cross_entropy.
  Tensor cross_entropy(const Tensor& h,       // (..., in)
                       const Tensor& labels,  // (rows of h), i32
                       double gradient_scale, const Tensor* loss_scale,
                       const ops::HeadOptions& options);  // -> ()

  // A low-rank term besides the weight; once, before the parameters have values. See lora.h.
  void add_lora(const LoraRank& rank, double dropout, int64_t number);
  const std::optional<LoraTerm>& lora() const { return lora_; }
  const Parameter& weight() const { return weights_.weight; }  // (out, in) or (in, out)
  ops::WeightLayout layout() const { return weights_.layout; }
  int64_t in() const { return weight().shape()[layout() == ops::WeightLayout::kOutIn ? 1 : 0]; }
  int64_t out() const { return weight().shape()[layout() == ops::WeightLayout::kOutIn ? 0 : 1]; }

 private:
  ops::LinearWeights weights_;
  std::optional<LoraTerm> lora_;
};

class Norm final : public Module {
 public:
  Norm(std::string name, const ModelConfig& config);
  ops::NormOutput operator()(const Tensor& x,                     // (..., hidden)
                             const Tensor& residual = Tensor());  // the same, or undefined

 private:
  ops::NormWeights weights_;
};

class Embedding final : public Module {
 public:
  Embedding(std::string name, int64_t rows, const ModelConfig& config);
  // The rows of the tokens, scaled as the family does, and of the positions unless null: one op,
  // inside both modules.
  Tensor operator()(const Tensor& tokens,  // (B, T), i32
                    Embedding* positions,
                    const Tensor* position_ids);  // (B, T), i32, or null -> (B, T, hidden)
  Parameter& table() { return table_; }

 private:
  ops::EmbeddingOptions options_;
  Parameter& table_;  // (rows, hidden)
};

}  // namespace fsdp::models
