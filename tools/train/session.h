// Everything one rank needs to train or evaluate a model: backend, model, sharding, optimizer. The
// commands (train, verify, generate, bench) are thin loops around it.
// One host wait per step at most, one step late: steps only enqueue, StepHandle::read() waits.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/fsdp/fully_sharded.h"
#include "core/trace_phases.h"
#include "models/causal_lm.h"
#include "models/weights.h"
#include "optim/clip.h"
#include "optim/loss_scaler.h"
#include "optim/optimizer.h"
#include "tools/config/choices.h"
#include "tools/data/batch.h"
#include "tools/launch/backend_choice.h"

namespace fsdp::tools {

struct SessionOptions {
  models::ModelConfig model;
  // Low-rank terms are what is trained; the model's own parameters are frozen.
  std::optional<models::LoraConfig> lora;
  int64_t max_length = 0;  // longest sequence of any batch
  comm::WrapPolicy wrap;   // empty: one unit per transformer block
  comm::FsdpOptions fsdp;  // param_dtype is the compute dtype
  BackendOptions backend;
  bool training = true;  // false: no optimizer state
  optim::OptimizerOptions optimizer;
  config::Decay decay = config::Decay::kMatrices;
  double clip_norm = 1.0;  // <= 0: no clipping
  double clip_power = 2;   // of the norm: 1, 2, 3, ... or infinity
  optim::LossScalerOptions loss_scale;
  config::LossMean loss_mean = config::LossMean::kTokens;
  RecomputeMode recompute = RecomputeMode::kNone;
  int64_t recompute_every = 1;  // in every k-th block
  // Parameters that keep their values: Hugging Face names; * stands for any characters.
  std::vector<std::string> frozen;
  uint64_t seed = 0;  // of dropout
};

// Those whose Hugging Face name matches a pattern keep their values. Error when a pattern matches
// none, or all are frozen.
void freeze_parameters(const models::ModelConfig& config, const std::vector<std::string>& patterns,
                       const std::vector<Parameter*>& parameters);

comm::WrapPolicy wrap_of(const SessionOptions& options);
std::vector<DType> computed_dtypes(const comm::FsdpOptions& options);  // of the run and its units
// Error when two tables that are used together are units and the arena has one buffer.
void check_buffers(Module& model, const comm::WrapPolicy& wrap, const comm::FsdpOptions& options,
                   int shards);

// This rank's rows of one global batch. Where it has none, the rank computes an ignored row, so
// that it takes part in every collective. With several micro-steps the rows are split evenly,
// earlier ones first.
using data::Batch;

struct StepValues {
  double loss = 0;       // as SessionOptions::loss_mean says, before the update
  double grad_norm = 0;  // global, unscaled, before clipping
  double loss_scale = 1;
  bool skipped = false;           // no update: a gradient was not finite, or out of range
  bool scale_at_minimum = false;  // the loss scale cannot fall further
  std::chrono::steady_clock::time_point ended;  // when the device was done with the step
};

// Results of a step that may still be running.
class StepHandle {
 public:
  StepValues read() const;  // waits

 private:
  friend class Session;
  // Where the stream writes the results; lives until it has.
  struct Landing {
    double loss = 0;
    double norm = 0;
    float loss_scale = 1;
    int32_t skipped = 0;
    int32_t scale_at_minimum = 0;
    std::chrono::steady_clock::time_point written;  // the last of these
  };
  std::shared_ptr<Landing> landing_ = std::make_shared<Landing>();
  EventPtr done_;
};

class Session {
 public:
  // Collective over `world`, whose lifetime must exceed the session's.
  Session(comm::Communicator& world, const SessionOptions& options);
  ~Session();

  // Gives the parameters their values; collective. See models/weights.h.
  void initialise(const models::FillFunction& fill);
  void initialise_from_first_rank(const models::FillFunction& fill);  // null on the others
  std::vector<Parameter*> parameters() { return model_->parameters(); }

  // Forward, backward, clip, optimizer. `step` counts steps from 0 (keys dropout).
  StepHandle train_step(const Batch& batch, double learning_rate, uint32_t step);
  // Its two halves. Between them the gradients are reduced and can be visited; whoever does not
  // want the update calls end_step() instead.
  StepHandle forward_backward(const Batch& batch, uint32_t step, bool training);
  void update(StepHandle& handle, double learning_rate);
  void end_step();  // forgets the gradients
  bool scales_loss() const { return scaler_ != nullptr; }
  const optim::LossScalerOptions& loss_scale() const { return options_.loss_scale; }
  // Mean loss over the global batch, without gradients or dropout. Collective, waits.
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
  void set_phases(TracePhases* phases) { phases_ = phases; }
  TracePhases* phases() const { return phases_; }

  models::CausalLM& model() { return *model_; }
  comm::FullySharded& sharded() { return *sharded_; }
  Backend& backend() { return *backend_; }
  optim::Optimizer& optimizer() { return *optimizer_; }
  comm::Communicator& world() { return world_; }  // through hosts, also where GPUs have their own
  int64_t max_length() const { return options_.max_length; }
  const std::optional<models::LoraConfig>& lora() const { return options_.lora; }
  DType compute_dtype() const { return options_.fsdp.param_dtype; }

 private:
  struct DeviceBatch {
    Tensor tokens;     // (B, T), i32
    Tensor labels;     // (B * T), i32: what each position predicts
    Tensor samples;    // (B), i64
    Tensor key_bias;   // of the mask; undefined without one
    Tensor positions;  // (B, T), i32; undefined: 0, 1, ... in every row
  };
  DeviceBatch upload(const Batch& batch);
  ForwardContext context(const DeviceBatch& batch, DropoutKey key, bool training) const;
  // What one labelled token of a micro-step counts in the step's loss.
  double token_weight(const Batch& batch) const;
  void sum_over_ranks(Tensor& scalar);
  // Reads a scalar into the handle's landing when the stream gets there.
  template <typename T>
  void read_into(StepHandle& handle, T StepHandle::Landing::*place, const Tensor& scalar);

  comm::Communicator& world_;
  SessionOptions options_;
  TracePhases* phases_ = nullptr;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<comm::Communicator> nccl_;    // the world of GPUs that talk over NCCL; null: none
  std::unique_ptr<comm::Communicator> losses_;  // on the compute stream
  std::unique_ptr<Tape> tape_;
  std::unique_ptr<models::CausalLM> model_;
  std::unique_ptr<comm::FullySharded> sharded_;
  std::unique_ptr<optim::Clipper> clipper_;
  std::unique_ptr<optim::LossScaler> scaler_;  // null: no loss scaling
  std::unique_ptr<optim::Optimizer> optimizer_;
};

}  // namespace fsdp::tools
