// A language model on this rank, sharded, trained and evaluated on batches of tokens: the engine
// with a causal language model in it. The loops around it: tools/train/trainer.h, and the rooms
// verify, generate, evaluate, bench. Steps only enqueue; StepHandle::read() waits for its step.
// Read next: engine.h, session_options.h.
#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "models/causal_lm.h"
#include "tools/engine/batch.h"
#include "tools/engine/engine.h"
#include "tools/engine/session_options.h"

namespace fsdp {

struct DeviceBatch {
  Tensor tokens;      // (B, T), i32
  Tensor targets;     // (B * T), i32: what each position predicts
  Tensor samples;     // (B), i64
  Tensor key_bias;    // of the mask; undefined without one
  Tensor positions;   // (B, T), i32; undefined: 0, 1, ... in every row, or nothing looks them up
  Tensor first_key;   // (B, T), i32; undefined: rows are not of documents
  int64_t pairs = 0;  // of tokens that see each other, with first_key

  // The context of a forward of these rows, which must outlive it.
  ForwardContext context(DropoutKey key, bool training) const;
};

// Error when the length is not within [1, max_length] or a token is not in the vocabulary. Values
// that are not tokens or targets are in the accumulation dtype of `compute`.
DeviceBatch upload(const Batch& batch, const models::ModelConfig& model, int64_t max_length,
                   Backend& backend, DType compute);

class Session : public Engine {
 public:
  // As the engine takes them: places, and a world that outlives the session. Collective.
  Session(comm::Communicator& world, Places&& places, const SessionOptions& options);

  // One step, as TrainStep orders it. `step` counts steps from 0 (dropout depends on it).
  StepHandle train_step(const Batch& batch, double learning_rate, uint32_t step,
                        double skip_above = std::numeric_limits<double>::infinity());
  // The two halves of train_step, which begins with steps().begin_update() where units are updated
  // in backward: gradients cannot be visited then, and the update has to follow. Else between the
  // two the gradients are reduced and can be visited; a caller that does not want the update calls
  // restart_step. `stop` is asked before every micro-step but the first; if it says so, on all
  // ranks, the step is dropped, as by restart_step, and the handle is empty.
  StepHandle forward_backward(const Batch& batch, uint32_t step, bool training,
                              const std::function<bool()>& stop = {});
  StepHandle update(double learning_rate,
                    double skip_above = std::numeric_limits<double>::infinity()) {
    return steps().update(learning_rate, skip_above);
  }
  void restart_step() { steps().restart(); }
  bool scales_loss() { return steps().loss_scale() != nullptr; }
  const optim::LossScalerOptions& loss_scale() const { return options_.loss_scale; }
  // Mean loss over the global batch, in its passes, without gradients or dropout. Collective,
  // waits.
  double evaluate(const Batch& batch);
  // (rows, length, V) of this rank's rows, in double; rows == 0 gives an empty vector. Collective.
  std::vector<double> logits(const Batch& batch);
  // (rows, V) after the last token of every row, without dropout. Collective: every rank passes one
  // row or more.
  std::vector<double> next_token_logits(const Tensor& tokens,  // (rows, T), i32
                                        const ForwardContext& context);
  // Name of the first unit whose forward output is not finite on this rank, "" when all are;
  // for the message of a run that diverged. Collective.
  std::string first_nonfinite_unit(const Batch& batch);

  models::CausalLM& model() { return static_cast<models::CausalLM&>(module()); }
  int64_t max_length() const { return options_.max_length; }
  const std::optional<models::LoraConfig>& lora() const { return options_.lora; }
  DType compute_dtype() const { return options_.fsdp.param_dtype; }

 private:
  void check(const Batch& batch) const;  // Error for what would train something else
  DeviceBatch upload(const Batch& batch);
  // The weight of one labelled token in the step's loss.
  double token_weight(const Batch& batch);

  SessionOptions options_;
};

}  // namespace fsdp
