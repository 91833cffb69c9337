// A decoder-only language model: embedding, blocks, final norm, head. It does not know that it is
// sharded; the sharding layer attaches to the hooks of its modules.
#pragma once

#include <functional>
#include <set>

#include "models/block.h"

namespace fsdp::models {

// Everything before the head: embedding, blocks, final norm. It adds nothing to the names of what
// is in it, "blocks.0" and not "base.blocks.0".
class BaseModel final : public Module {
 public:
  // Tables for sequences up to `max_length`.
  BaseModel(std::string name, const ModelConfig& config, Backend& backend, DType dtype,
            int64_t max_length);

  using Look = std::function<void(const std::string& module, const Tensor& output)>;
  Tensor operator()(const Tensor& tokens,                                        // (B, T), i32
                    const ForwardContext& context, const Look& look = nullptr);  // (B, T, hidden)
  void set_recompute(RecomputeMode mode, int64_t every);
  void leave_out(const std::vector<int64_t>& blocks);
  Parameter& token_table() { return tokens_->table(); }
  std::vector<Module*> before_blocks() const;
  Norm* final_norm() const { return final_norm_; }  // null: the model has none

 private:
  // With what all blocks of a pass have in common.
  ForwardContext of_pass(ForwardContext context) const;

  const ModelConfig& config_;
  RopeTablesPtr rope_;
  Embedding* tokens_;
  Embedding* positions_ = nullptr;
  Norm* embedding_norm_ = nullptr;
  std::vector<Block*> blocks_;
  std::set<const Block*> left_out_;
  Norm* final_norm_ = nullptr;
};

class CausalLM final : public Module {
 public:
  // `max_length`: longest sequence it will see (rotary tables); `dtype`: of compute.
  CausalLM(const ModelConfig& config, Backend& backend, DType dtype, int64_t max_length);

  const ModelConfig& config() const { return config_; }
  // What runs before the first block and after the last one, in order. With a tied head the two
  // have a parameter in common.
  std::vector<Module*> before_blocks() const { return base_->before_blocks(); }
  std::vector<Module*> after_blocks() const;
  // Activation recompute in every k-th block (the first, the k+1-th, ...), none in the others.
  void set_recompute(RecomputeMode mode, int64_t every = 1) { base_->set_recompute(mode, every); }
  // How its logits exist in loss(); logits() and last_logits() have those of the compute dtype.
  void set_head(const ops::HeadOptions& options) { head_options_ = options; }
  // Blocks that the passes from now on leave out: x goes past them (LayerDrop, Fan et al., ICLR
  // 2020). They have no gradients then. Every rank must leave out the same ones.
  void leave_out(const std::vector<int64_t>& blocks) { base_->leave_out(blocks); }

  // Sum over labelled positions of the cross-entropy, recorded for a loss of gradient_scale * sum
  // (times the loss scale, read on the device).
  // Target [b * T + t] is the token that position t of row b predicts (models/input_rules.h).
  Tensor loss(const Tensor& tokens,   // (B, T), i32
              const Tensor& targets,  // (B * T), i32
              const ForwardContext& context, double gradient_scale,
              const Tensor* loss_scale = nullptr);                          // (), f32 -> ()
  Tensor logits(const Tensor& tokens, const ForwardContext& context);       // -> (B, T, V)
  Tensor last_logits(const Tensor& tokens, const ForwardContext& context);  // -> (B, V)

  // Shows the output of the embedding ("embedding"), every block and the final norm to `look`: for
  // finding where numbers go wrong. Without recording.
  using Look = BaseModel::Look;
  void probe(const Tensor& tokens, const ForwardContext& context, const Look& look);

 private:
  ModelConfig config_;
  BaseModel* base_;
  Linear* head_;  // (V, hidden); shares the token table when tied
  ops::HeadOptions head_options_;
};

}  // namespace fsdp::models
