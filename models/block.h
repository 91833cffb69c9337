// One transformer block: attention and MLP, each behind a norm, around a residual stream. All
// families are configurations of it.
#pragma once

#include <memory>
#include <vector>

#include "core/ops/attention.h"
#include "core/recompute.h"
#include "models/layers.h"

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
  Tensor key_bias = Tensor();  // ALiBi of rows without padding; undefined: none
};

// A module inside a block, made of linear layers in the family's conventions.
class Layer : public Module {
 protected:
  // `kind`: what the family's prefix is put before, "GPT2" + "MLP".
  Layer(std::string name, const std::string& kind, const BlockSpec& spec);

  struct LinearSpec {
    std::string name;
    int64_t in = 0;
    int64_t out = 0;
    bool bias = false;
    bool into_residual = false;  // its output adds to the residual stream: scaled init
    bool of_attention = false;   // makes q, k or v: see ModelConfig::xavier_init
  };
  Linear& add_linear(const LinearSpec& linear);

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

  HeadView head_view(const std::vector<Tensor>& tensors, int part) const;

  RopeTablesPtr rope_;  // of positions 0, 1, ...; others are in the context
  Tensor key_bias_;
  std::vector<Linear*> inputs_;  // one packed, or q, k, v
  Linear* output_;
};

class Mlp final : public Layer {
 public:
  Mlp(std::string name, const BlockSpec& spec);
  Tensor operator()(const Tensor& x,  // (B, T, hidden)
                    const ForwardContext& context);

 private:
  // Of gate and up, each (B, T, ffn), or of both in rows -> (B, T, ffn)
  Tensor gated(const std::vector<Tensor>& inputs) const;

  std::vector<Linear*> inputs_;  // up, or gate and up
  Linear* output_;
};

class Block final : public Module {
 public:
  Block(std::string name, const BlockSpec& spec);
  void set_recompute(RecomputeMode mode) { recompute_ = mode; }
  Tensor operator()(const Tensor& x,  // (B, T, hidden)
                    const ForwardContext& context);

 private:
  void add_part(BlockPart part, const BlockSpec& spec);
  Tensor compute(const Tensor& x, const ForwardContext& context);
  Tensor mlp(const Tensor& x, const ForwardContext& context);

  const ModelConfig& config_;
  int64_t layer_;
  Norm* attention_norm_ = nullptr;
  Attention* attention_ = nullptr;
  Norm* mlp_norm_ = nullptr;
  Mlp* mlp_ = nullptr;
  RecomputeMode recompute_ = RecomputeMode::kNone;
};

}  // namespace fsdp::models
