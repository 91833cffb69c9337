// What every optimizer has in common: the shards of one rank that it steps, the state that it keeps
// for them, and the order of a step. AdamW and Adam: optim/adam.h; Adamax: optim/adamax.h;
// Adadelta: optim/adadelta.h; SGD: optim/sgd.h.
// The master, its gradient and the state of a shard live on one backend, which need not be the one
// that computes the model: everything here runs on the compute stream of the master's backend.
// Not here: the learning rate (optim/schedule.h), clipping (optim/clip.h), loss scaling
// (optim/loss_scaler.h), the order of a training step.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "core/flat_layout.h"
#include "optim/staged_update.h"

namespace fsdp::optim {

enum class OptimizerKind : uint8_t { kAdamW, kAdam, kAdamax, kAdadelta, kSgd };
inline constexpr std::array kOptimizerKinds = {OptimizerKind::kAdamW, OptimizerKind::kAdam,
                                               OptimizerKind::kAdamax, OptimizerKind::kAdadelta,
                                               OptimizerKind::kSgd};
std::string_view name_of(OptimizerKind kind);  // "adamw", "adam", "adamax", "adadelta", "sgd"

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kAdamW;
  // For parameters whose decay flag is set before sharding. AdamW shrinks them by learning rate
  // times this; the others add this times the parameter to its gradient.
  double weight_decay = 0.1;
  // AdamW, Adam, Adamax
  double beta1 = 0.9;
  double beta2 = 0.95;
  double rho = 0.9;  // Adadelta: what its two averages keep
  double epsilon = 1e-8;
  // SGD
  double momentum = 0;
  double dampening = 0;   // of what the gradient adds to the momentum
  bool nesterov = false;  // needs momentum, and no dampening
  // Of what is kept for every element; absent: the accumulation dtype of the master. bf16 is
  // rounded by chance: what a step adds to a moment is often less than bf16 holds, and would be
  // lost.
  std::optional<DType> state_dtype = std::nullopt;
  bool rounds_masters_by_chance = false;  // masters in bf16; else to nearest
  uint64_t rounding_seed = 0;
};

// A part of the optimizer's state: `values` are those of elements [first, first + n) of the
// parameter (shape (n), floating) or, of shape (), one value of the whole parameter.
// They are the optimizer's own memory, or its file: what is written there counts from the next step
// on.
struct StatePart {
  std::string_view name;  // PyTorch's: "exp_avg", "momentum_buffer"; "step": updates so far, i32
  const Parameter& parameter;
  int64_t first = 0;
  Tensor values;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // One step of every shard with the reduced gradients. `coefficient` multiplies the gradients,
  // `skip` != 0 makes the step a no-op, both read on the device; see Clipper. `number`: of the
  // step, by which what is rounded by chance is drawn.
  void step(double learning_rate,
            const Tensor& coefficient,  // (), accumulation dtype
            const Tensor& skip,         // (), i32
            uint32_t number);

  // Calls `visit` for all state of this rank, in the order of shards and of parameters in them. A
  // parameter's elements are visited on the ranks that own them; its "step", which is the same on
  // all, on every rank. What a checkpoint saves and restores besides the master.
  void visit_state(const std::function<void(const StatePart&)>& visit);

  const std::vector<OptimizerShard>& shards() const { return shards_; }

 protected:
  // `state_names`: of the values that are kept for every element of a master.
  Optimizer(std::vector<OptimizerShard> shards, const OptimizerOptions& options,
            std::vector<std::string_view> state_names);
  const OptimizerOptions& options() const { return options_; }

 private:
  // Steps a shard, or a piece of it. `state`: (n) each, in the order of the names, in the dtype of
  // the master, 0 before the first step.
  virtual void update(Backend& backend, const ShardUpdate& shard, std::vector<Tensor>& state) = 0;

  struct ShardState {
    std::vector<Tensor> values;  // (n) each, by name
    std::vector<Tensor> stored;  // the same where they are always
    Tensor step_counts;          // (parameters), i32
    std::vector<ShardPart> parts;
  };
  ShardState state_of(const OptimizerShard& shard, DType dtype) const;
  void step_part(const OptimizerShard& shard, const ShardState& state, const ShardPart& part,
                 const Tensor& coefficient, const Tensor& skip, uint32_t number);

  std::vector<OptimizerShard> shards_;
  OptimizerOptions options_;
  std::vector<std::string_view> state_names_;
  std::optional<WideBuffers> wide_;  // none where masters and state are in the accumulation dtype
  std::vector<ShardState> state_;    // by shard
  Tensor learning_rate_;             // (), f64
};

// Names of the values that are kept for every element: {"exp_avg", "exp_avg_sq"}; memory is
// predicted by their number.
std::vector<std::string_view> state_names(const OptimizerOptions& options);

// Error when a shard list is empty, shards lie on several backends, or options contradict.
std::unique_ptr<Optimizer> make_optimizer(std::vector<OptimizerShard> shards,
                                          const OptimizerOptions& options);

}  // namespace fsdp::optim
