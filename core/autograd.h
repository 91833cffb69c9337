// Eager tape autograd. Ops record Nodes; Tape::backward runs them in reverse order of recording.
// Parameters are the leaves: their gradients are written straight into memory that somebody else
// supplies (an FSDP unit's flat buffer), never through the tape.
// Not here: the ops (core/ops), modules (core/module.h).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace fsdp {

class Tape;

// Gradients of a node's outputs in, gradients of its inputs out (undefined: none needed or absent).
using BackwardFunction = std::function<std::vector<Tensor>(std::vector<Tensor>& output_gradients)>;

struct Node;
class Recipe;      // core/recompute.h
class HostInputs;  // core/host_inputs.h

struct AutogradMeta {
  std::shared_ptr<Node> producer;
  int output = 0;                            // which output of the producer
  std::shared_ptr<Recipe> recipe = nullptr;  // how to compute the value again; usually null
};

struct Node {
  Tape* tape = nullptr;
  std::string name;
  int64_t sequence = 0;                               // order of recording
  std::vector<std::shared_ptr<AutogradMeta>> inputs;  // null: this input needs no gradient
  std::vector<Tensor> output_gradients;               // filled during backward
  BackwardFunction backward;                          // cleared once run: frees what it saved
};

class Tape {
 public:
  explicit Tape(Backend& backend) : backend_(&backend) {}
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  Backend& backend() const { return *backend_; }
  bool recording() const { return recording_; }

  // Makes `outputs` the results of a node with these inputs. Called by ops when wanted(inputs).
  void record(std::string name, const std::vector<const Tensor*>& inputs,
              const std::vector<Tensor*>& outputs, BackwardFunction backward);

  // Runs everything below `output`. The gradient of `output` is `gradient`; undefined for a loss
  // whose op knows that it is the end (linear_cross_entropy).
  void backward(const Tensor& output, const Tensor& gradient = Tensor());

  // Whether ops leave recipes for values that are cheap to compute again (selective recompute).
  bool selective() const { return selective_; }
  class Selective {
   public:
    explicit Selective(Tape& tape) : tape_(tape) { tape_.selective_ = true; }
    ~Selective() { tape_.selective_ = false; }
    Selective(const Selective&) = delete;
    Selective& operator=(const Selective&) = delete;

   private:
    Tape& tape_;
  };

  // Where inputs of what is computed again wait on the host; null: nowhere. Not owned.
  void set_host_inputs(HostInputs* inputs) { host_inputs_ = inputs; }
  HostInputs* host_inputs() const { return host_inputs_; }

  // Whether a forward runs that has run before (full recompute): for whoever draws a step.
  bool recomputing() const { return recomputing_; }
  class Recomputing {
   public:
    explicit Recomputing(Tape& tape) : tape_(tape) { tape_.recomputing_ = true; }
    ~Recomputing() { tape_.recomputing_ = false; }
    Recomputing(const Recomputing&) = delete;
    Recomputing& operator=(const Recomputing&) = delete;

   private:
    Tape& tape_;
  };

  // No recording while alive: evaluation, recompute's first pass.
  class Pause {
   public:
    explicit Pause(Tape& tape) : tape_(tape), before_(tape.recording_) { tape.recording_ = false; }
    ~Pause() { tape_.recording_ = before_; }
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    Tape& tape_;
    bool before_;
  };

 private:
  Backend* backend_;
  bool recording_ = true;
  bool selective_ = false;
  bool recomputing_ = false;
  HostInputs* host_inputs_ = nullptr;
  int64_t next_sequence_ = 0;
};

// The tape that recorded one of these inputs, or null when none needs a gradient.
Tape* tape_of(std::initializer_list<const Tensor*> inputs);

// Same value; calls `hook` when its gradient arrives, before any node recorded earlier runs.
// Returns x itself when x needs no gradient.
Tensor on_gradient(const Tensor& x, std::string name, std::function<void()> hook);

// How a parameter starts from scratch: normal(mean, deviation), or uniform within [-bound, bound)
// if that is not 0; keyed by the parameter's name.
struct Initializer {
  double mean = 0;
  double deviation = 0;
  double bound = 0;
};

// Where an op writes a weight gradient: stores, or adds when something is there already.
struct GradientTarget {
  Tensor tensor;
  bool accumulate = false;
};

// What a parameter is to an optimizer that steps whole matrices. Of two or more dimensions: a
// hidden matrix, unless the model says otherwise.
enum class ParameterRole : uint8_t { kHiddenMatrix, kEmbedding, kHead, kVector };

class Parameter {
 public:
  Parameter(std::string name, Shape shape, Initializer initializer, bool decay)
      : name_(std::move(name)),
        shape_(shape),
        initializer_(initializer),
        decay_(decay),
        role_(shape.rank() < 2 ? ParameterRole::kVector : ParameterRole::kHiddenMatrix) {}
  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;

  const std::string& name() const { return name_; }
  const Shape& shape() const { return shape_; }
  int64_t numel() const { return shape_.numel(); }
  const Initializer& initializer() const { return initializer_; }
  bool decay() const { return decay_; }  // weight decay applies
  void set_decay(bool decay) { decay_ = decay; }
  ParameterRole role() const { return role_; }
  void set_role(ParameterRole role) { role_ = role; }
  bool trainable() const { return trainable_; }
  void set_trainable(bool trainable) { trainable_ = trainable; }

  // Full values in the compute dtype. While sharded its data() throws.
  const Tensor& value() const {
    FSDP_CHECK(value_.defined(), "[parameter] {}: has no values yet", name_);
    return value_;
  }
  void set_value(Tensor value) { value_ = std::move(value); }
  // Where its uses are recorded; null: nowhere. Module::set_tape says it to a whole model.
  void set_tape(Tape* tape) { tape_ = tape; }
  Tape* tape() const { return tape_; }
  // What gives memory of the parameter's shape, in any dtype, to the first contribution to a
  // gradient. Null: the parameter allocates it, in the accumulation dtype.
  void set_gradient_memory(std::function<Tensor()> supply) { gradient_memory_ = std::move(supply); }

  // Whether an op that uses this parameter now has to record its gradient.
  bool recording() const { return trainable_ && tape_ != nullptr && tape_->recording(); }
  // The parameter right behind which this one is to lie in a flat buffer that holds both, so that
  // an op can take the two as one (core/parameter_span.h); null: none. See FlatLayout.
  void set_predecessor(const Parameter* parameter) { predecessor_ = parameter; }
  const Parameter* predecessor() const { return predecessor_; }

  // Forward: one more backward contribution will come. Only when recording().
  void add_use() { ++pending_uses_; }
  // Backward: where to write this contribution. `several`: it will be written in pieces.
  // `allocate`: gives the memory that nobody supplies.
  using AllocateGradient = std::function<Tensor(Backend&, Shape, DType)>;
  GradientTarget begin_gradient(bool several = false, const AllocateGradient& allocate = nullptr);
  void end_gradient();
  int pending_uses() const { return pending_uses_; }

  // The gradient gathered so far; undefined when absent.
  const Tensor& gradient() const { return gradient_; }
  // For a gradient that is taken before all contributions have come. settle_gradient(): gradient()
  // is what has come so far, also where a wider sum is kept beside it. leave_gradient(): what comes
  // next is a new gradient, in new memory. Uses stay pending.
  void settle_gradient();
  void leave_gradient();
  // Forgets the gradient and all pending uses: after it was reduced, or after an exception.
  void clear_gradient();

 private:
  std::string name_;
  Shape shape_;
  Initializer initializer_;
  bool decay_;
  ParameterRole role_;
  bool trainable_ = true;
  Tensor value_;
  Tape* tape_ = nullptr;
  std::function<Tensor()> gradient_memory_;
  Tensor gradient_;  // in the dtype of that memory
  Tensor wide_;  // accumulation dtype, while contributions add up to a gradient of another dtype
  int pending_uses_ = 0;
  const Parameter* predecessor_ = nullptr;
};

}  // namespace fsdp
