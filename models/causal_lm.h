// A decoder-only language model: embedding, blocks, final norm, head. It does not know that it is
// sharded; the sharding layer attaches to the hooks of its modules.
#pragma once

#include <optional>
#include <set>

#include "models/block.h"

namespace fsdp::models {

class CausalLM final : public Module {
 public:
  // `max_length`: longest sequence it will see (rotary tables); `dtype`: of compute.
  CausalLM(const ModelConfig& config, Backend& backend, DType dtype, int64_t max_length);

  const ModelConfig& config() const { return config_; }
  // Activation recompute in every k-th block (the first, the k+1-th, ...), none in the others.
  void set_recompute(RecomputeMode mode, int64_t every = 1);
  // Blocks that the passes from now on leave out: x goes past them (LayerDrop, Fan et al., ICLR
  // 2020). They have no gradients then. Every rank must leave out the same ones.
  void leave_out(const std::vector<int64_t>& blocks);

  // Sum over labelled positions of the cross-entropy, recorded for a loss of gradient_scale * sum
  // (times the loss scale, read on the device).
  // Label [b * T + t] is the token that position t of row b predicts (see shifted_labels).
  Tensor loss(const Tensor& tokens,  // (B, T), i32
              const Tensor& labels,  // (B * T), i32
              const ForwardContext& context, double gradient_scale,
              const Tensor* loss_scale = nullptr);                          // (), f32 -> ()
  Tensor logits(const Tensor& tokens, const ForwardContext& context);       // -> (B, T, V)
  Tensor last_logits(const Tensor& tokens, const ForwardContext& context);  // -> (B, V)

  // Shows the output of the embedding ("embedding"), every block and the final norm to `look`: for
  // finding where numbers go wrong. Without recording.
  using Look = std::function<void(const std::string& module, const Tensor& output)>;
  void probe(const Tensor& tokens, const ForwardContext& context, const Look& look);

 private:
  Tensor hidden_states(const Tensor& tokens, const ForwardContext& context,
                       const Look& look = nullptr);  // (B, T, hidden)

  ModelConfig config_;
  RopeTablesPtr rope_;
  Parameter* token_table_;               // (V, hidden)
  Parameter* position_table_ = nullptr;  // (max_positions, hidden)
  std::vector<Block*> blocks_;
  std::set<const Block*> left_out_;
  std::optional<ops::NormWeights> final_norm_;
  Parameter* head_;  // (V, hidden); the token table when tied
};

// Hugging Face labels (position t holds token t) -> what each position predicts: shifted left, the
// last position of every row ignored.
std::vector<int32_t> shifted_labels(const std::vector<int32_t>& labels,  // (B, T)
                                    int64_t rows, int64_t length);

}  // namespace fsdp::models
