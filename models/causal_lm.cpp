// The language model around the blocks.
#include "models/causal_lm.h"

#include "core/ops/cross_entropy.h"
#include "core/ops/elementwise.h"
#include "core/ops/embedding.h"

namespace fsdp::models {
namespace {

const ModelConfig& validated(const ModelConfig& config) {
  validate(config);
  return config;
}

}  // namespace

CausalLM::CausalLM(const ModelConfig& config, Backend& backend, DType dtype, int64_t max_length)
    : Module("", "CausalLM"),
      config_(validated(config)),
      rope_(make_rope_tables(config, backend, accumulation_dtype(dtype), max_length)) {
  FSDP_CHECK(config_.positions != PositionKind::kLearned || max_length <= config_.max_positions,
             "[model] sequence length: expected at most the model's {} positions, got {}",
             config_.max_positions, max_length);
  const Initializer normal = {0, config_.initializer_range};
  token_table_ = &add_parameter("embedding.tokens.weight",
                                Shape{config_.vocabulary, config_.hidden}, normal, true);
  if (config_.positions == PositionKind::kLearned) {
    position_table_ = &add_parameter("embedding.positions.weight",
                                     Shape{config_.max_positions, config_.hidden}, normal, true);
  }
  for (int64_t i = 0; i < config_.layers; ++i) {
    blocks_.push_back(&add_child<Block>(fmt::format("blocks.{}", i), BlockSpec{config_, i, rope_}));
  }
  const Shape width = {config_.hidden};
  Parameter& norm_weight = add_parameter("final_norm.weight", width, {1, 0}, false);
  Parameter* norm_bias = nullptr;
  if (config_.norm == NormKind::kLayerNorm) {
    norm_bias = &add_parameter("final_norm.bias", width, {}, false);
  }
  final_norm_.emplace(ops::NormWeights{norm_weight, norm_bias, config_.norm_epsilon});
  head_ = config_.tied_head ? token_table_
                            : &add_parameter("head.weight", token_table_->shape(), normal, true);
}

void CausalLM::set_recompute(RecomputeMode mode, int64_t every) {
  FSDP_CHECK(every >= 1, "[recompute] every: expected at least 1, got {}", every);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const bool here = i % static_cast<size_t>(every) == 0;
    blocks_[i]->set_recompute(here ? mode : RecomputeMode::kNone);
  }
}

Tensor CausalLM::hidden_states(const Tensor& tokens, const ForwardContext& context,
                               const Look& look) {
  const auto show = [&](const std::string& module, const Tensor& output) {
    if (look) look(module, output);
  };
  Tensor x = ops::embedding(tokens, *token_table_, position_table_);
  x = ops::dropout(x, ops::dropout_args(context, config_.embedding_dropout, config_.layers,
                                        ops::DropoutSite::kEmbedding));
  show("embedding", x);
  for (Block* block : blocks_) {
    if (left_out_.contains(block)) continue;
    x = (*block)(x, context);
    show(block->name(), x);
  }
  Tensor y = ops::norm(x, Tensor(), *final_norm_).y;
  show("final_norm", y);
  return y;
}

void CausalLM::leave_out(const std::vector<int64_t>& blocks) {
  left_out_.clear();
  for (const int64_t block : blocks) {
    FSDP_CHECK(block >= 0 && block < config_.layers,
               "[model] leave_out: expected a block within [0, {}), got {}", config_.layers, block);
    left_out_.insert(blocks_[static_cast<size_t>(block)]);
  }
}

void CausalLM::probe(const Tensor& tokens, const ForwardContext& context, const Look& look) {
  run(Tensor(), [&](const Tensor&) { return hidden_states(tokens, context, look); });
}

Tensor CausalLM::loss(const Tensor& tokens, const Tensor& labels, const ForwardContext& context,
                      double gradient_scale, const Tensor* loss_scale) {
  return run(Tensor(), [&](const Tensor&) {
    return ops::linear_cross_entropy(hidden_states(tokens, context), *head_, labels, gradient_scale,
                                     loss_scale);
  });
}

Tensor CausalLM::logits(const Tensor& tokens, const ForwardContext& context) {
  return run(Tensor(), [&](const Tensor&) {
    return ops::linear(hidden_states(tokens, context), {.weight = *head_});
  });
}

Tensor CausalLM::last_logits(const Tensor& tokens, const ForwardContext& context) {
  return run(Tensor(), [&](const Tensor&) {
    const Tensor h = hidden_states(tokens, context);
    const int64_t rows = tokens.shape()[0], length = tokens.shape()[1], width = config_.hidden;
    Tensor last = Tensor::empty(h.backend(), Shape{rows, width}, h.dtype());
    for (int64_t row = 0; row < rows; ++row) {
      const Tensor from = h.slice(((row + 1) * length - 1) * width, Shape{width});
      h.backend().copy(h.backend().compute_stream(), last.slice(row * width, Shape{width}).data(),
                       from.data(), from.bytes());
    }
    return ops::linear(last, {.weight = *head_});
  });
}

std::vector<int32_t> shifted_labels(const std::vector<int32_t>& labels, int64_t rows,
                                    int64_t length) {
  FSDP_CHECK(static_cast<int64_t>(labels.size()) == rows * length,
             "[labels] expected {} x {} values, got {}", rows, length, labels.size());
  std::vector<int32_t> shifted(labels.size(), kIgnoreIndex);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t t = 0; t + 1 < length; ++t) {
      const size_t i = static_cast<size_t>(row * length + t);
      shifted[i] = labels[i + 1];
    }
  }
  return shifted;
}

}  // namespace fsdp::models
