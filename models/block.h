// One transformer block: attention and MLP, each behind a norm, around a residual stream. All
// families are configurations of it.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "core/module.h"
#include "core/ops/attention.h"
#include "core/ops/norm.h"
#include "core/recompute.h"
#include "models/config.h"

namespace fsdp::models {

using RopeTablesPtr = std::shared_ptr<const ops::RopeTables>;  // null: no rotary positions

// cos and sin of position * frequency, in `dtype`.
RopeTablesPtr make_rope_tables(const ModelConfig& config, Backend& backend, DType dtype,
                               int64_t positions);
// The head_dim / 2 frequencies after scaling, in double.
std::vector<double> rope_frequencies(const RopeConfig& rope, int64_t rotary_dim);

// What every part of a block is built from.
struct BlockSpec {
  const ModelConfig& config;
  int64_t layer;
  RopeTablesPtr rope;
};

// A module that makes linear and norm weights in the family's conventions.
class Layer : public Module {
 protected:
  Layer(std::string name, std::string class_name, const BlockSpec& spec);

  struct LinearSpec {
    std::string name;
    int64_t in = 0;
    int64_t out = 0;
    bool bias = false;
    bool into_residual = false;  // its output adds to the residual stream: scaled init
  };
  ops::LinearWeights make_linear(const LinearSpec& linear);
  ops::NormWeights make_norm(const std::string& name);

  const ModelConfig& config_;  // of the model, which outlives its blocks
  int64_t layer_;
};

class Attention final : public Layer {
 public:
  Attention(std::string name, const BlockSpec& spec);
  Tensor operator()(const Tensor& x,  // (B, T, hidden)
                    const ForwardContext& context);

 private:
  Tensor mix_heads(const Tensor& x, const ForwardContext& context);  // (B, T, heads * head_dim)

  RopeTablesPtr rope_;
  std::vector<ops::LinearWeights> inputs_;  // one packed, or q, k, v
  std::optional<ops::LinearWeights> output_;
};

class Mlp final : public Layer {
 public:
  Mlp(std::string name, const BlockSpec& spec);
  Tensor operator()(const Tensor& x);  // (B, T, hidden)

 private:
  std::vector<ops::LinearWeights> inputs_;  // up, or gate and up
  std::optional<ops::LinearWeights> output_;
};

class Block final : public Layer {
 public:
  Block(std::string name, const BlockSpec& spec);
  void set_recompute(RecomputeMode mode) { recompute_ = mode; }
  Tensor operator()(const Tensor& x,  // (B, T, hidden)
                    const ForwardContext& context);

 private:
  Tensor compute(const Tensor& x, const ForwardContext& context);

  std::optional<ops::NormWeights> attention_norm_;
  std::optional<ops::NormWeights> mlp_norm_;
  Attention* attention_;
  Mlp* mlp_;
  RecomputeMode recompute_ = RecomputeMode::kNone;
};

}  // namespace fsdp::models
