// One transformer block: attention and MLP, each behind a norm, around a residual stream. All
// families are configurations of it.
#pragma once

#include <memory>

#include "core/module.h"
#include "core/ops/attention.h"
#include "core/ops/norm.h"
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

class Attention final : public Module {
 public:
  Attention(std::string name, const BlockSpec& spec);
  Tensor operator()(const Tensor& x,  // (B, T, hidden)
                    const ForwardContext& context);

 private:
  Tensor mix_heads(const Tensor& x, const ForwardContext& context);

  const ModelConfig& config_;
  int64_t layer_;
  RopeTablesPtr rope_;
  std::vector<ops::LinearWeights> inputs_;  // one packed, or q, k, v
  std::optional<ops::LinearWeights> output_;
};

class Mlp final : public Module {
 public:
  Mlp(std::string name, const BlockSpec& spec);
  Tensor operator()(const Tensor& x);  // (B, T, hidden)

 private:
  const ModelConfig& config_;
  std::vector<ops::LinearWeights> inputs_;  // up, or gate and up
  std::optional<ops::LinearWeights> output_;
};

class Block final : public Module {
 public:
  Block(std::string name, const BlockSpec& spec);
  Tensor operator()(const Tensor& x,  // (B, T, hidden)
                    const ForwardContext& context);

 private:
  const ModelConfig& config_;
  int64_t layer_;
  std::optional<ops::NormWeights> attention_norm_;
  std::optional<ops::NormWeights> mlp_norm_;
  Attention* attention_;
  Mlp* mlp_;
};

// Weights of a norm or linear layer, registered with their module.
struct WeightSpec {
  std::string name;  // "attention_norm", "qkv"
  int64_t in = 0;    // linear only
  int64_t out = 0;
  bool bias = false;
  bool into_residual = false;  // output adds to the residual stream: scaled init
};

}  // namespace fsdp::models
