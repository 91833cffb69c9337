// The language model around the blocks.
#include "models/causal_lm.h"

#include "core/kv_cache.h"
#include "core/ops/elementwise.h"
#include "models/key_bias.h"

namespace fsdp::models {
namespace {

const ModelConfig& validated(const ModelConfig& config) {
  validate(config);
  return config;
}

}  // namespace

BaseModel::BaseModel(std::string name, const ModelConfig& config, Backend& backend, DType dtype,
                     int64_t max_length)
    : Module(std::move(name), config.class_prefix + "Model", ""), config_(config) {
  const DType wide = accumulation_dtype(dtype);
  rope_ = make_rope_tables(config, backend, wide, max_length);
  Tensor key_bias;
  if (config.positions == PositionKind::kAlibi) {
    const std::vector<int32_t> no_padding(static_cast<size_t>(max_length), 1);
    key_bias = make_key_bias(config, backend, wide, no_padding, 1);
  }
  tokens_ = &add_child<Embedding>("embedding.tokens", config.vocabulary, config);
  if (config.positions == PositionKind::kLearned) {
    positions_ = &add_child<Embedding>("embedding.positions",
                                       config.max_positions + config.position_offset, config);
  }
  if (config.embedding_norm) embedding_norm_ = &add_child<Norm>("embedding.norm", config);
  for (int64_t i = 0; i < config.layers; ++i) {
    blocks_.push_back(
        &add_child<Block>(fmt::format("blocks.{}", i), BlockSpec{config, i, rope_, key_bias}));
  }
  if (config.final_norm) final_norm_ = &add_child<Norm>("final_norm", config);
}

std::vector<Module*> BaseModel::before_blocks() const {
  std::vector<Module*> modules = {tokens_};
  if (positions_) modules.push_back(positions_);
  if (embedding_norm_) modules.push_back(embedding_norm_);
  return modules;
}

void BaseModel::set_recompute(RecomputeMode mode, int64_t every) {
  FSDP_CHECK(every >= 1, "[recompute] every: expected at least 1, got {}", every);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const bool here = i % static_cast<size_t>(every) == 0;
    blocks_[i]->set_recompute(here ? mode : RecomputeMode::kNone);
  }
}

void BaseModel::leave_out(const std::vector<int64_t>& blocks) {
  left_out_.clear();
  for (const int64_t block : blocks) {
    FSDP_CHECK(block >= 0 && block < config_.layers,
               "[model] leave_out: expected a block within [0, {}), got {}", config_.layers, block);
    left_out_.insert(blocks_[static_cast<size_t>(block)]);
  }
}

ForwardContext BaseModel::of_pass(ForwardContext context) const {
  if (rope_ && context.positions) {
    context.rope_at_positions =
        std::make_shared<ops::RopeTables>(ops::rope_tables_at(*rope_, *context.positions));
  }
  return context;
}

Tensor BaseModel::operator()(const Tensor& tokens, const ForwardContext& context,
                             const Look& look) {
  const auto show = [&](const std::string& module, const Tensor& output) {
    if (look) look(module, output);
  };
  FSDP_CHECK(!context.cache || context.positions, "[model] a cache: expected positions with it");
  return run(Tensor(), [&](const Tensor&) {
    Tensor x = (*tokens_)(tokens, positions_, context.positions);
    if (embedding_norm_) x = (*embedding_norm_)(x).y;
    x = ops::dropout(x, ops::dropout_args(context, config_.embedding_dropout, config_.layers,
                                          ops::DropoutSite::kEmbedding));
    show("embedding", x);
    const ForwardContext of_blocks = of_pass(context);
    for (Block* block : blocks_) {
      if (left_out_.contains(block)) continue;
      x = (*block)(x, of_blocks);
      show(block->name(), x);
    }
    if (context.cache) context.cache->advance(tokens.shape()[1]);
    if (!final_norm_) return x;
    Tensor y = (*final_norm_)(x).y;
    show(final_norm_->name(), y);
    return y;
  });
}

CausalLM::CausalLM(const ModelConfig& config, Backend& backend, DType dtype, int64_t max_length)
    : Module("", config.model_class), config_(validated(config)) {
  FSDP_CHECK(config_.positions != PositionKind::kLearned || max_length <= config_.max_positions,
             "[model] sequence length: expected at most the model's {} positions, got {}",
             config_.max_positions, max_length);
  base_ = &add_child<BaseModel>("base", config_, backend, dtype, max_length);
  if (config_.tied_head) {
    head_ = &add_child<Linear>("head", base_->token_table(), config_.head_bias);
  } else {
    head_ = &add_child<Linear>(
        "head", Linear::Spec{.in = config_.hidden,
                             .out = config_.vocabulary,
                             .bias = config_.head_bias,
                             .initial_weight = {.deviation = config_.initializer_range},
                             .role = ParameterRole::kHead});
  }
}

std::vector<Module*> CausalLM::after_blocks() const {
  if (base_->final_norm()) return {base_->final_norm(), head_};
  return {head_};
}

void CausalLM::probe(const Tensor& tokens, const ForwardContext& context, const Look& look) {
  run(Tensor(), [&](const Tensor&) { return (*base_)(tokens, context, look); });
}

Tensor CausalLM::loss(const Tensor& tokens, const Tensor& targets, const ForwardContext& context,
                      double gradient_scale, const Tensor* loss_scale) {
  return run(Tensor(), [&](const Tensor&) {
    return head_->cross_entropy((*base_)(tokens, context), targets, gradient_scale, loss_scale,
                                head_options_);
  });
}

Tensor CausalLM::logits(const Tensor& tokens, const ForwardContext& context) {
  return run(Tensor(), [&](const Tensor&) { return (*head_)((*base_)(tokens, context), context); });
}

Tensor CausalLM::last_logits(const Tensor& tokens, const ForwardContext& context) {
  return run(Tensor(), [&](const Tensor&) {
    const Tensor h = (*base_)(tokens, context);
    const int64_t rows = tokens.shape()[0], length = tokens.shape()[1], width = config_.hidden;
    Tensor last = Tensor::empty(h.backend(), Shape{rows, width}, h.dtype());
    for (int64_t row = 0; row < rows; ++row) {
      const Tensor from = h.slice(((row + 1) * length - 1) * width, Shape{width});
      h.backend().copy(h.backend().compute_stream(), last.slice(row * width, Shape{width}).data(),
                       from.data(), from.bytes());
    }
    return (*head_)(last, context);
  });
}

}  // namespace fsdp::models
