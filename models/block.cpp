// Composition of a transformer block from its layers and the ops between them.
#include "models/block.h"

#include <algorithm>
#include <cmath>

#include "core/kv_cache.h"
#include "core/layer_args.h"
#include "core/ops/elementwise.h"
#include "core/recompute.h"

namespace fsdp::models {
namespace {

bool trainable(const Module& module) {
  const std::vector<Parameter*> all = module.parameters();
  return std::any_of(all.begin(), all.end(), [](const Parameter* p) { return p->trainable(); });
}

}  // namespace

Layer::Layer(std::string name, const std::string& kind, const BlockSpec& spec)
    : Module(std::move(name), spec.config.class_prefix + kind),
      config_(spec.config),
      layer_(spec.layer) {}

Linear& Layer::add_linear(const LinearSpec& linear) {
  Initializer weight = {.deviation = config_.initializer_range}, bias;
  if (linear.into_residual && config_.scaled_residual_init) {
    weight.deviation /= std::sqrt(2.0 * static_cast<double>(config_.layers));
  }
  if (config_.xavier_init) {
    const auto in = static_cast<double>(linear.in), out = static_cast<double>(linear.out);
    weight = {.bound = std::sqrt((linear.of_attention ? 3 : 6) / (in + out))};
    if (linear.of_attention) bias = {.bound = 1 / std::sqrt(in)};
  }
  return add_child<Linear>(linear.name, Linear::Spec{.in = linear.in,
                                                     .out = linear.out,
                                                     .bias = linear.bias,
                                                     .initial_weight = weight,
                                                     .initial_bias = bias,
                                                     .layout = config_.weight_layout});
}

// ---------------------------------------------------------------------------- Attention

Attention::Attention(std::string name, const BlockSpec& spec)
    : Layer(std::move(name), "Attention", spec), rope_(spec.rope), key_bias_(spec.key_bias) {
  const int64_t q = config_.heads * config_.head_dim;
  const int64_t kv = config_.kv_heads * config_.head_dim;
  const auto input = [&](const char* part, int64_t out) {
    inputs_.push_back(&add_linear({.name = part,
                                   .in = config_.hidden,
                                   .out = out,
                                   .bias = config_.qkv_bias,
                                   .of_attention = true}));
  };
  if (config_.packed_qkv) {
    input("qkv", q + 2 * kv);
  } else {
    input("q", q);
    input("k", kv);
    input("v", kv);
    Linear::keep_together(inputs_);
  }
  output_ = &add_linear({.name = "out",
                         .in = q,
                         .out = config_.hidden,
                         .bias = config_.attention_out_bias,
                         .into_residual = true});
}

// Where q, k or v (part 0, 1, 2) lies: in a tensor of its own, or in the rows of one.
HeadView Attention::head_view(const std::vector<Tensor>& tensors, int part) const {
  const int64_t width = config_.head_dim;
  const int64_t heads = part == 0 ? config_.heads : config_.kv_heads;
  if (tensors.size() > 1) return {&tensors[static_cast<size_t>(part)], heads, width, 0, width};
  if (config_.packed_by_head) return {&tensors[0], heads, width, part * width, 3 * width};
  const int64_t heads_before = part == 0 ? 0 : config_.heads + (part - 1) * config_.kv_heads;
  return {&tensors[0], heads, width, heads_before * width, width};
}

Tensor Attention::mix_heads(const Tensor& x, const ForwardContext& context) {
  std::vector<Tensor> tensors = Linear::joined_outputs(inputs_, x, context);
  const HeadView q = head_view(tensors, 0), k = head_view(tensors, 1), v = head_view(tensors, 2);
  if (rope_) {
    FSDP_CHECK(!context.positions || context.rope_at_positions,
               "[attention] positions: expected the rows of the rotary tables with them");
    const ops::RopeTables& tables = context.positions ? *context.rope_at_positions : *rope_;
    for (const HeadView& rotated : {q, k}) {
      // In place: the views keep pointing at the tensor's slot.
      Tensor& slot = tensors[static_cast<size_t>(rotated.tensor - tensors.data())];
      slot = ops::rope(slot, rotated, tables);
    }
  }
  const Tensor* key_bias = context.key_bias;
  if (!key_bias && key_bias_.defined()) key_bias = &key_bias_;
  const KvCache::Entry seen =
      context.cache ? context.cache->append(layer_, k, v) : KvCache::Entry{k, v, 0};
  return ops::attention({.q = q,
                         .k = seen.k,
                         .v = seen.v,
                         .keys = seen.keys,
                         .scale = config_.attention_scale(layer_),
                         .window = config_.window,
                         .key_bias = key_bias,
                         .hides_keys = context.key_bias != nullptr,  // padding
                         .first_key = context.first_key,
                         .pairs = context.pairs,
                         .dropout = ops::dropout_args(context, config_.attention_dropout, layer_,
                                                      ops::DropoutSite::kAttentionWeights)});
}

Tensor Attention::operator()(const Tensor& x, const ForwardContext& context) {
  return run(x, [&](const Tensor& input) {
    const Tensor y = (*output_)(mix_heads(input, context), context);
    return ops::dropout(y, ops::dropout_args(context, config_.residual_dropout, layer_,
                                             ops::DropoutSite::kAttentionOutput));
  });
}

// ---------------------------------------------------------------------------- MLP

Mlp::Mlp(std::string name, const BlockSpec& spec) : Layer(std::move(name), "MLP", spec) {
  const auto input = [&](const char* part) {
    inputs_.push_back(&add_linear(
        {.name = part, .in = config_.hidden, .out = config_.ffn, .bias = config_.mlp_bias}));
  };
  if (config_.mlp == MlpKind::kGated) input("gate");
  input("up");
  Linear::keep_together(inputs_);
  output_ = &add_linear({.name = "down",
                         .in = config_.ffn,
                         .out = config_.hidden,
                         .bias = config_.mlp_bias,
                         .into_residual = true});
}

Tensor Mlp::gated(const std::vector<Tensor>& inputs) const {
  return inputs.size() > 1 ? ops::glu(inputs[0], inputs[1], config_.activation)
                           : ops::glu_of_halves(inputs[0], config_.activation);
}

Tensor Mlp::operator()(const Tensor& x, const ForwardContext& context) {
  return run(x, [&](const Tensor& input) {
    if (config_.mlp == MlpKind::kGated) {
      return (*output_)(gated(Linear::joined_outputs(inputs_, input, context)), context);
    }
    const Tensor inner = (*inputs_[0])(input, context, config_.activation);
    return (*output_)(ops::dropout(inner, ops::dropout_args(context, config_.mlp_dropout, layer_,
                                                            ops::DropoutSite::kMlpInner)),
                      context);
  });
}

// ---------------------------------------------------------------------------- Block

Block::Block(std::string name, const BlockSpec& spec)
    : Module(std::move(name), spec.config.block_class), config_(spec.config), layer_(spec.layer) {
  for (const BlockPart part : config_.block_order) add_part(part, spec);
}

void Block::add_part(BlockPart part, const BlockSpec& spec) {
  switch (part) {
    case BlockPart::kAttentionNorm:
      attention_norm_ = &add_child<Norm>("attention_norm", config_);
      break;
    case BlockPart::kAttention:
      attention_ = &add_child<Attention>("attention", spec);
      break;
    case BlockPart::kMlpNorm:
      mlp_norm_ = &add_child<Norm>("mlp_norm", config_);
      break;
    case BlockPart::kMlp:
      mlp_ = &add_child<Mlp>("mlp", spec);
      break;
  }
}

Tensor Block::operator()(const Tensor& x, const ForwardContext& context) {
  return run(x, [&](const Tensor& input) {
    // Where nothing needs a gradient, backward does not come: nothing to run again.
    const bool to_host = recompute_ == RecomputeMode::kOffload;
    const bool again = (to_host || recompute_ == RecomputeMode::kFull) &&
                       (input.requires_grad() || trainable(*this));
    if (again) {
      return recompute(
          *tape(), input, [this, context](const Tensor& same) { return compute(same, context); },
          to_host ? InputPlace::kHost : InputPlace::kDevice);
    }
    if (recompute_ != RecomputeMode::kSelective) return compute(input, context);
    const Tape::Selective selective(*tape());
    return compute(input, context);
  });
}

Tensor Block::compute(const Tensor& x, const ForwardContext& context) {
  if (config_.post_norm) {
    const Tensor between = (*attention_norm_)((*attention_)(x, context), x).y;
    return (*mlp_norm_)(mlp(between, context), between).y;
  }
  const ops::NormOutput before = (*attention_norm_)(x);
  if (config_.parallel_residual) {
    const ops::NormOutput beside = (*mlp_norm_)(before.stream);
    const Tensor mixed = (*attention_)(before.y, context);
    return ops::add(ops::add(beside.stream, mixed), mlp(beside.y, context));
  }
  const auto stream_behind = [this](const ops::NormOutput& norm) -> const Tensor& {
    return config_.normed_residual ? norm.y : norm.stream;
  };
  const Tensor mixed = (*attention_)(before.y, context);
  const ops::NormOutput between = (*mlp_norm_)(mixed, stream_behind(before));
  return ops::add(stream_behind(between), mlp(between.y, context));
}

Tensor Block::mlp(const Tensor& x, const ForwardContext& context) {
  return ops::dropout((*mlp_)(x, context), ops::dropout_args(context, config_.residual_dropout,
                                                             layer_, ops::DropoutSite::kMlpOutput));
}

}  // namespace fsdp::models
