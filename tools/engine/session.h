// Everything one rank needs to train or evaluate a model: backend, model, sharding, optimizer. The
// loops around it: trainer.h, and the rooms verify, generate, evaluate, bench.
// Steps only enqueue; StepHandle::read() waits, one step late. Where the loop waits: trainer.h.
// Read next: train_step.h (the order of a step), device_batch.h, session_options.h.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/host_inputs.h"
#include "models/weights.h"
#include "tools/engine/device_batch.h"
#include "tools/engine/session_options.h"
#include "tools/engine/train_step.h"

namespace fsdp {

class Session {
 public:
  // Collective over `world`, whose lifetime must exceed the session's.
  Session(comm::Communicator& world, const SessionOptions& options);
  ~Session();

  // Gives the parameters their values; collective. See models/weights.h.
  void initialise(const models::FillFunction& fill);
  void initialise_from_first_rank(const models::FillFunction& fill);  // null on the others
  std::vector<Parameter*> parameters() { return model_->parameters(); }

  // One step, as TrainStep orders it. `step` counts steps from 0 (dropout depends on it).
  StepHandle train_step(const Batch& batch, double learning_rate, uint32_t step);
  // The two halves of train_step. Between them the gradients are reduced and can be visited; a
  // caller that does not want the update calls restart_step. `stop` is asked before every
  // micro-step but the first; if it says so, on all ranks, the step is dropped, as by restart_step,
  // and the handle is empty.
  StepHandle forward_backward(const Batch& batch, uint32_t step, bool training,
                              const std::function<bool()>& stop = {});
  StepHandle update(double learning_rate) { return step_->update(learning_rate); }
  void restart_step() { step_->restart(); }
  bool scales_loss() const { return step_->loss_scale() != nullptr; }
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

  // Where the parts of steps are noted; null: nowhere. Not owned.
  void set_phases(TracePhases* phases) {
    phases_ = phases;
    step_->set_phases(phases);
  }
  TracePhases* phases() const { return phases_; }
  void set_trace(Trace* trace);  // of all its backends, when they are idle; null: off. Not owned
  // The most that this rank has taken of the memory of what computes, which for a CPU is its host.
  size_t peak_memory() const;

  models::CausalLM& model() { return *model_; }
  comm::FullySharded& sharded() { return *sharded_; }
  Backend& backend() { return *backend_; }
  // Of what lies in the host's memory and not in the backend's; null: nothing does.
  Backend* host() { return host_.get(); }
  // Memory that the host reaches: the backend's own, or else the host's.
  Backend& host_memory();
  Backend* file() { return file_.get(); }  // where it lies instead; null: in the host's memory
  const Tape& tape() const { return *tape_; }
  optim::Optimizer& optimizer() { return step_->optimizer(); }
  optim::LossScaler* loss_scaler() { return step_->loss_scaler(); }  // null: none
  comm::Communicator& world() {
    return world_;
  }  // between hosts, even where GPUs have a communicator of their own
  int64_t max_length() const { return options_.max_length; }
  const std::optional<models::LoraConfig>& lora() const { return options_.lora; }
  DType compute_dtype() const { return options_.fsdp.param_dtype; }

 private:
  DeviceBatch upload(const Batch& batch);
  // The weight of one labelled token in the step's loss.
  double token_weight(const Batch& batch) const;

  comm::Communicator& world_;
  SessionOptions options_;
  TracePhases* phases_ = nullptr;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Backend> host_;
  std::unique_ptr<Backend> file_;
  std::unique_ptr<HostInputs> host_inputs_;   // recompute: offload; else null
  std::unique_ptr<comm::Communicator> nccl_;  // the world of GPUs that talk over NCCL; null: none
  std::unique_ptr<Tape> tape_;
  std::unique_ptr<models::CausalLM> model_;
  std::unique_ptr<comm::FullySharded> sharded_;
  std::unique_ptr<TrainStep> step_;
};

}  // namespace fsdp
