// One training step of a sharded model, in the only order that is right. A step has as many
// micro-steps as FsdpOptions::micro_steps says:
//
//          micro_step x n              update
//   IDLE ------------------> REDUCED ----------> IDLE
//   any state, also after an error --restart, recover--> IDLE     as if the step had not begun
//
// With FsdpOptions::update_in_backward units are updated in the backward of the last micro-step, so
// begin_update comes before it. The step then cannot be taken back: restart is refused after it,
// and an error in it leaves some units updated.
//
//   micro_step   begin_micro_step, the forwards, their backwards, finish_backward; after the last
//                one gradients are reduced, and may be visited; then update, or restart
//   update       clip, loss scale, optimizer, finish_step
//   evaluate     a forward without gradients; only when IDLE, because it drops gradients
//
// A call in another state throws an Error with its name, what is expected before it and what was.
// The host waits only in the first step and in a restart: results land in the StepHandle. Not here:
// the forward and its batch (tools/engine/session.h); units (comm/fsdp/fully_sharded.h).
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/fsdp/fully_sharded.h"
#include "core/shard_values.h"
#include "core/tensor.h"
#include "core/trace_phases.h"
#include "optim/clip.h"
#include "optim/loss_scaler.h"
#include "optim/optimizer.h"

namespace fsdp {

struct StepValues {
  double loss = 0;       // before the update
  double grad_norm = 0;  // global, unscaled, before clipping
  double loss_scale = 1;
  StepSkip skipped = kNotSkipped;               // no update, and why
  bool scale_at_minimum = false;                // the loss scale cannot fall further
  std::chrono::steady_clock::time_point ended;  // when the device was done with the step
};

// Of a step that was dropped before its update only the loss lands.
class StepHandle {
 public:
  StepValues read() const;  // waits for what was asked for before this handle was copied

  // Where the stream writes the results; lives until it has.
  struct Landing {
    double loss = 0;
    double norm = 0;
    float loss_scale = 1;
    int32_t skipped = 0;
    int32_t scale_at_minimum = 0;
    // By the streams of two backends, where the masters live elsewhere.
    std::atomic<std::chrono::steady_clock::time_point> written = {};
  };
  // Reads a scalar into its place when the compute stream gets there. T: the scalar's type.
  template <typename T>
  void read_later(T Landing::*place, const Tensor& scalar) {
    read_later(&(*landing_.*place), scalar, sizeof(T));
  }

 private:
  void read_later(void* place, const Tensor& scalar, size_t bytes);

  std::shared_ptr<Landing> landing_ = std::make_shared<Landing>();
  std::vector<EventPtr> done_;  // of every read: they may be of several backends
};

struct TrainStepOptions {
  bool training = true;  // false: no optimizer state; only evaluate, and micro_step with restart
  optim::OptimizerOptions optimizer;
  optim::WholeMatrices matrices = {};  // its rule and roles; the rest comes from the mesh
  double clip_norm = 1;                // <= 0: no clipping
  double clip_power = 2;
  optim::LossScalerOptions loss_scale;
};

class TrainStep {
 public:
  // Collective over `world`, the ranks of `sharded`; all three must outlive this.
  TrainStep(comm::FullySharded& sharded, Tape& tape, comm::Communicator& world,
            const TrainStepOptions& options);

  // A forward pass of this rank. `loss` runs it and gives a sum over labels, (); the step's loss is
  // the sum of all ranks' and passes' weight * loss. With fixed_order that of rank 0's first
  // micro-step comes first, then those of the other ranks', then the next micro-step's.
  struct Forward {
    std::function<Tensor()> loss;
    double weight = 1;
  };
  // `weight` counts for the loss that is reported, not for gradients: these the loss fixes itself.
  // Backward begins without a gradient, so the last op must know its own, as
  // ops::linear_cross_entropy does by gradient_scale. A reduction averages over the ranks, so
  // gradient_scale is weight * ranks (weight with fixed_order), and loss_scale() is passed on.
  // tools/engine/session.cpp does all this.
  // Several forwards: their backwards come after all of them, the last one's first.
  // `ranks_with_pass`: see FullySharded::begin_micro_step.
  void micro_step(const std::vector<Forward>& forwards, std::optional<int> ranks_with_pass = {});
  // After the last micro-step: the loss. Error before it.
  StepHandle handle() const;
  // With update_in_backward, before the last micro-step: what update() will be called with.
  void begin_update(double learning_rate);
  bool updates_in_backward() const { return updates_in_backward_; }
  // All results. `skip_above`: a gradient norm with which the update is left out on the device.
  StepHandle update(double learning_rate,
                    double skip_above = std::numeric_limits<double>::infinity());

  // Calls `forward` without gradients, then gives all parameters back. Between steps.
  void evaluate(const std::function<void()>& forward);
  // Drops the gradients and the loss of the step so far: the next step starts anew. Error when
  // units are updated already.
  void restart();
  void recover();  // the same after a step that threw on every rank; see FullySharded::recover

  // What losses are multiplied by before backward; null: nothing. (), f32.
  const Tensor* loss_scale() const { return scaler_ ? &scaler_->scale() : nullptr; }
  void sum_over_ranks(Tensor& scalar);  // on the compute stream
  // The sum over all ranks, (). Of several elements each rank has filled its own, number micro-step
  // * ranks + rank, and the others are 0; they are added in this order.
  Tensor sum_of_losses(Tensor& losses);                       // (1) or (micro-steps * ranks), f64
  optim::Optimizer& optimizer();                              // Error when made without training
  optim::LossScaler* loss_scaler() { return scaler_.get(); }  // null: none
  // Where forward, backward and optimizer are noted; null: nowhere. Not owned.
  void set_phases(TracePhases* phases) { phases_ = phases; }

 private:
  std::string state() const;  // "between steps"
  void check(std::string_view call, bool right, std::string_view expected) const;
  void enter(std::string_view call, bool right, std::string_view expected);
  void add_to_total(const Tensor& loss, double weight);
  void update_shard(size_t shard);
  void end_step();

  comm::FullySharded& sharded_;
  Tape& tape_;
  TracePhases* phases_ = nullptr;
  std::unique_ptr<comm::Communicator> across_;   // all ranks, for losses
  std::unique_ptr<optim::Clipper> clipper_;      // null: not training
  std::unique_ptr<optim::LossScaler> scaler_;    // null: no loss scaling
  std::unique_ptr<optim::Optimizer> optimizer_;  // null: not training
  bool updates_in_backward_ = false;
  std::optional<double> rate_;  // of the updates in backward, once it is given
  int micro_steps_;             // of a step
  int done_ = 0;                // of them
  bool interrupted_ = false;    // a call is running, or ended with an error
  // (1), f64: the step's loss so far. With fixed_order (micro-steps * ranks): the losses so far.
  Tensor total_;
  StepHandle handle_;
};

}  // namespace fsdp
