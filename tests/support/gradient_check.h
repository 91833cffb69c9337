// Proof of a backward pass: central finite differences of sixth order, in double, against the
// gradients that the tape delivers, for every input and every parameter of a function.
// Read next: tests/core/ops/linear_test.cpp for its use.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/autograd.h"

namespace fsdp::test {

// A tensor at which a graph begins: keeps the gradient that reaches it.
class Leaf {
 public:
  Leaf(Tape& tape, const Tensor& values);
  const Tensor& value() const { return value_; }
  const Tensor& gradient() const { return *gradient_; }  // undefined: none came

 private:
  Tensor value_;
  std::shared_ptr<Tensor> gradient_;
};

// The scalar sum over k of <weights[k], outputs[k]> (its value is not computed): start backward
// from it. It gives `weights` away: memory that nobody else holds may then be overwritten by ops.
Tensor weighted_sum(Tape& tape, const std::vector<Tensor>& outputs, std::vector<Tensor> weights);

class GradientCheck {
 public:
  explicit GradientCheck(Backend& backend) : backend_(backend), tape_(backend) {}

  Tape& tape() { return tape_; }
  // Uniform in [low, high).
  void input(const std::string& name, Shape shape, double low = -1, double high = 1);
  Parameter& parameter(const std::string& name, Shape shape, double low = -1, double high = 1);
  // Several whose values lie side by side in one storage.
  std::vector<Parameter*> side_by_side(const std::string& name, const std::vector<Shape>& shapes);
  // Takes over a parameter of a module.
  void attach(Parameter& parameter, double low = -1, double high = 1);

  // f's outputs, weighted at random, against finite differences. CHECKs every variable: one random
  // direction, and single elements. `differences`: how many single elements of each.
  using Function = std::function<std::vector<Tensor>(const std::vector<Tensor>& inputs)>;
  void run(const Function& f, int elements = 4);
  // f returns a loss whose backward starts by itself, recorded for gradient_scale * loss.
  using Loss = std::function<Tensor(const std::vector<Tensor>& inputs)>;
  void run_loss(const Loss& f, double gradient_scale, int elements = 4);

  // Relative: of a directional derivative to the norm of the gradient, of an element to itself.
  double tolerance = 1e-8;
  // The largest of those errors in the runs so far.
  double largest_error() const { return largest_error_; }

 private:
  struct Variable {
    std::string name;
    Shape shape;
    std::vector<double> values;
    Parameter* parameter = nullptr;  // null: an input
    Tensor tensor;
    std::vector<double> gradient;
  };

  std::vector<Tensor> inputs() const;
  void add(const std::string& name, Shape shape, double low, double high, Parameter* parameter);
  using Backward = std::function<void(const std::vector<Tensor>& outputs)>;
  void run_backward(const Function& f, const Backward& backward);
  void compare(const std::function<double()>& evaluate, int elements);
  double difference(Variable& variable, const std::vector<double>& direction,
                    const std::function<double()>& evaluate);

  Backend& backend_;
  Tape tape_;
  std::vector<std::unique_ptr<Parameter>> owned_;
  std::vector<Variable> variables_;
  double largest_error_ = 0;
};

}  // namespace fsdp::test
