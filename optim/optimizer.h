// The optimizer: the shards of one rank that it steps, the state that it keeps for them, and the
// order of a step. Its arithmetic is an element-wise rule: core/optimizer_rules. Parameters of some
// roles may have another rule, which needs whole matrices: optim/matrix_rule.h.
// The master, its gradient and the state of a shard live on one backend, which need not be the one
// that computes the model: everything here runs on the compute stream of the master's backend.
// Not here: the learning rate (optim/schedule.h), clipping (optim/clip.h), loss scaling
// (optim/loss_scaler.h), the order of a training step.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/flat_layout.h"
#include "optim/matrix_rule.h"

namespace fsdp {
struct ShardUpdate;
}

namespace fsdp::optim {

enum class OptimizerKind : uint8_t;            // optim/optimizer_kind.h
std::string_view name_of(OptimizerKind kind);  // as configuration and traces name it

struct OptimizerOptions {
  OptimizerKind kind = {};  // kAdamW
  // For parameters whose decay flag is set before sharding. Each rule says how it decays them.
  double weight_decay = 0.1;
  // Of the rules that read them.
  double beta1 = 0.9;
  double beta2 = 0.95;
  double rho = 0.9;
  double epsilon = 1e-8;
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
  // Error when the shard list is empty, shards lie on several backends, or options contradict.
  Optimizer(std::vector<OptimizerShard> shards, const OptimizerOptions& options,
            WholeMatrices matrices = {});
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // One step of every shard with the reduced gradients. `coefficient` multiplies the gradients,
  // `skip` != 0 makes the step a no-op, both read on the device; see Clipper. `number`: of the
  // step, by which what is rounded by chance is drawn. Collective over the group of the matrices.
  void step(double learning_rate,
            const Tensor& coefficient,  // (), accumulation dtype
            const Tensor& skip,         // (), i32
            uint32_t number);
  // The same in parts, in any order of the shards: each of shards() once, by its index.
  void begin_step(double learning_rate, const Tensor& coefficient, const Tensor& skip,
                  uint32_t number);
  void step_shard(size_t index);

  // Calls `visit` for all state of this rank, in the order of shards and of parameters in them. A
  // parameter's elements are visited on the ranks that own them; its "step", which is the same on
  // all, on every rank. What a checkpoint saves and restores besides the master.
  void visit_state(const std::function<void(const StatePart&)>& visit);

  const std::vector<OptimizerShard>& shards() const { return shards_; }

 private:
  struct MatrixPlace {  // of a parameter that the rule of matrices steps
    ShardPiece piece;   // of this rank; perhaps empty
    std::vector<int64_t> counts;
    std::vector<ShardSegment> segments;  // the piece, relative to itself
  };
  struct ShardState {
    std::vector<Tensor> values;          // (n) each; their names: names_of(parameter)
    std::vector<Tensor> stored;          // the same where they are always
    Tensor step_counts;                  // (parameters), i32
    std::vector<ShardSegment> segments;  // that the element-wise rule steps
    std::vector<MatrixPlace> matrices;
    std::vector<std::vector<uint64_t>> draws;
  };
  ShardState state_of(const OptimizerShard& shard, DType dtype) const;
  std::vector<std::vector<uint64_t>> draws_of(const OptimizerShard& shard, DType state,
                                              size_t count) const;
  static MatrixPlace place_of(const OptimizerShard& shard, int parameter);
  bool is_matrix(const Parameter& parameter) const;  // whether the rule of matrices steps it
  const std::vector<std::string_view>& names_of(const Parameter& parameter) const {
    return is_matrix(parameter) ? matrix_names_ : names_;
  }
  void step_elements(Backend& backend, const ShardUpdate& shard, std::vector<Tensor>& state) const;
  void step_matrices(const OptimizerShard& shard, const ShardState& state,
                     const ShardUpdate& update) const;

  std::vector<OptimizerShard> shards_;
  OptimizerOptions options_;
  WholeMatrices matrices_;
  std::vector<std::string_view> names_, matrix_names_;  // of the state of each rule
  std::vector<ShardState> state_;                       // by shard
  Tensor learning_rate_;                                // (), f64
  Tensor coefficient_, skip_;                           // of this step
  uint32_t number_ = 0;
};

// Names of the values that are kept for every element: {"exp_avg", "exp_avg_sq"}; memory is
// predicted by their number. Error when options contradict.
std::vector<std::string_view> state_names(const OptimizerOptions& options);

std::unique_ptr<Optimizer> make_optimizer(std::vector<OptimizerShard> shards,
                                          const OptimizerOptions& options,
                                          WholeMatrices matrices = {});

}  // namespace fsdp::optim
