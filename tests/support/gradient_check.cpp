// Finite differences of sixth order, d(k) = f(kh) - f(-kh):
// f'(0) = (45 d(1) - 9 d(2) + d(3)) / 60h, error h^6 f^(7) / 140.
#include "tests/support/gradient_check.h"

#include <algorithm>
#include <cmath>

#include <doctest/doctest.h>

#include "tests/support/tensors.h"

namespace fsdp::test {
namespace {

// Below this a gradient is rounding: that of a key's bias, which softmax does not see, is zero.
constexpr double kNoGradient = 1e-5;
constexpr double kStep = 5e-4;  // balances truncation against rounding, about 1e-12 each

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

double largest(const std::vector<double>& values) {
  double m = 0;
  for (const double x : values) m = std::max(m, std::abs(x));
  return m;
}

}  // namespace

Leaf::Leaf(Tape& tape, const Tensor& values)
    : value_(values.detached()), gradient_(std::make_shared<Tensor>()) {
  tape.record("leaf", {}, {&value_}, [gradient = gradient_](std::vector<Tensor>& gradients) {
    *gradient = gradients[0];
    return std::vector<Tensor>{};
  });
}

Tensor weighted_sum(Tape& tape, const std::vector<Tensor>& outputs, std::vector<Tensor> weights) {
  Tensor loss = Tensor::zeros(tape.backend(), Shape{}, DType::kF64);
  std::vector<const Tensor*> inputs;
  for (const Tensor& output : outputs) inputs.push_back(&output);
  tape.record(
      "weighted_sum", inputs, {&loss},
      [weights = std::move(weights)](std::vector<Tensor>&) mutable { return std::move(weights); });
  return loss;
}

void GradientCheck::add(const std::string& name, Shape shape, double low, double high,
                        Parameter* parameter) {
  Variable variable = {.name = name, .shape = shape, .parameter = parameter};
  variable.values = random_values(shape.numel(), hash_name(name), low, high);
  variable.tensor = Tensor::from_host(backend_, shape, variable.values);
  if (parameter) {
    parameter->set_value(variable.tensor);
    parameter->set_tape(&tape_);
  }
  variables_.push_back(std::move(variable));
}

void GradientCheck::input(const std::string& name, Shape shape, double low, double high) {
  add(name, shape, low, high, nullptr);
}

Parameter& GradientCheck::parameter(const std::string& name, Shape shape, double low, double high) {
  owned_.push_back(std::make_unique<Parameter>(name, shape, Initializer{}, false));
  add(name, shape, low, high, owned_.back().get());
  return *owned_.back();
}

std::vector<Parameter*> GradientCheck::side_by_side(const std::string& name,
                                                    const std::vector<Shape>& shapes) {
  std::vector<Parameter*> out;
  int64_t total = 0;
  for (const Shape& shape : shapes) {
    out.push_back(&parameter(name + std::to_string(out.size()), shape));
    total += shape.numel();
  }
  const Tensor all = Tensor::empty(backend_, Shape{total}, DType::kF64);
  int64_t first = 0;
  for (Variable& v : variables_) {
    if (std::find(out.begin(), out.end(), v.parameter) == out.end()) continue;
    v.tensor = all.slice(first, v.shape);
    v.tensor.write(v.values.data());
    v.parameter->set_value(v.tensor);
    first += v.shape.numel();
  }
  return out;
}

void GradientCheck::attach(Parameter& parameter, double low, double high) {
  add(parameter.name(), parameter.shape(), low, high, &parameter);
}

std::vector<Tensor> GradientCheck::inputs() const {
  std::vector<Tensor> tensors;
  for (const Variable& v : variables_) {
    if (!v.parameter) tensors.push_back(v.tensor);
  }
  return tensors;
}

// Fills the variables' gradients.
void GradientCheck::run_backward(const Function& f, const Backward& backward) {
  const auto activations = [&] {
    return backend_.ledger().usage().current[static_cast<size_t>(MemoryCategory::kActivation)];
  };
  const size_t before = activations();
  std::vector<Leaf> leaves;
  for (const Tensor& input : inputs()) leaves.emplace_back(tape_, input);
  {
    std::vector<Tensor> values;
    for (const Leaf& leaf : leaves) values.push_back(leaf.value());
    backward(f(values));
  }
  size_t next = 0;
  for (Variable& v : variables_) {
    CAPTURE(v.name);
    const Tensor gradient = v.parameter ? v.parameter->gradient() : leaves[next++].gradient();
    v.gradient.assign(v.values.size(), 0.0);
    if (v.parameter) CHECK(v.parameter->pending_uses() == 0);
    if (v.parameter && !v.parameter->trainable()) {
      CHECK_FALSE(gradient.defined());
      continue;
    }
    REQUIRE(gradient.defined());
    CHECK(gradient.shape() == v.shape);
    v.gradient = gradient.to_doubles();
    if (v.parameter) v.parameter->clear_gradient();
  }
  leaves.clear();
  CHECK(activations() == before);  // backward leaves nothing behind
}

double GradientCheck::difference(Variable& variable, const std::vector<double>& direction,
                                 const std::function<double()>& evaluate) {
  const auto at = [&](double step) {
    std::vector<double> moved = variable.values;
    for (size_t i = 0; i < moved.size(); ++i) moved[i] += step * direction[i];
    variable.tensor.write(moved.data());
    return evaluate();
  };
  const auto d = [&](int k) { return at(k * kStep) - at(-k * kStep); };
  const double slope = (45 * d(1) - 9 * d(2) + d(3)) / (60 * kStep);
  variable.tensor.write(variable.values.data());
  return slope;
}

void GradientCheck::compare(const std::function<double()>& evaluate, int elements) {
  const Tape::Pause pause(tape_);
  for (Variable& v : variables_) {
    if (v.parameter && !v.parameter->trainable()) continue;
    CAPTURE(v.name);
    const double norm = std::sqrt(dot(v.gradient, v.gradient));
    CHECK(norm > 0);
    const auto check = [&](double expected, double got, double scale) {
      const double error = std::abs(expected - got) / scale;
      CAPTURE(expected);
      CAPTURE(got);
      CAPTURE(error);
      CHECK(error <= tolerance);
      largest_error_ = std::max(largest_error_, error);
    };
    std::vector<double> direction = random_values(v.shape.numel(), hash_name(v.name) + 1);
    for (double& d : direction) d = d < 0 ? -1 : 1;
    check(difference(v, direction, evaluate), dot(v.gradient, direction),
          std::max(norm, kNoGradient));
    const std::vector<double> where = random_values(elements, hash_name(v.name) + 2, 0, 1);
    for (const double fraction : where) {
      const auto i = static_cast<size_t>(fraction * static_cast<double>(v.values.size()));
      CAPTURE(i);
      std::vector<double> one(v.values.size(), 0.0);
      one[i] = 1;
      // An element may be zero by chance or truth: then a hundredth of the largest counts.
      check(difference(v, one, evaluate), v.gradient[i],
            std::max({std::abs(v.gradient[i]), 1e-2 * largest(v.gradient), kNoGradient}));
    }
  }
}

void GradientCheck::run(const Function& f, int elements) {
  std::vector<Tensor> weights;
  {
    const Tape::Pause pause(tape_);
    for (const Tensor& output : f(inputs())) {
      REQUIRE(output.dtype() == DType::kF64);
      weights.push_back(random_tensor(backend_, output.shape(), DType::kF64, weights.size() + 99));
    }
  }
  // Twice: with gradients that others hold too, and with gradients that ops may overwrite.
  run_backward(f, [&](const std::vector<Tensor>& outputs) {
    tape_.backward(weighted_sum(tape_, outputs, weights));
  });
  std::vector<std::vector<double>> gradients;
  for (const Variable& v : variables_) gradients.push_back(v.gradient);
  run_backward(f, [&](const std::vector<Tensor>& outputs) {
    std::vector<Tensor> own;
    for (const Tensor& w : weights) {
      own.push_back(Tensor::from_host(backend_, w.shape(), w.to_doubles()));
    }
    tape_.backward(weighted_sum(tape_, outputs, std::move(own)));
  });
  for (size_t i = 0; i < variables_.size(); ++i) {
    CAPTURE(variables_[i].name);
    CHECK(variables_[i].gradient == gradients[i]);
  }
  compare(
      [&] {
        double sum = 0;
        const std::vector<Tensor> outputs = f(inputs());
        for (size_t i = 0; i < outputs.size(); ++i) {
          sum += dot(outputs[i].to_doubles(), weights[i].to_doubles());
        }
        return sum;
      },
      elements);
}

void GradientCheck::run_loss(const Loss& f, double gradient_scale, int elements) {
  run_backward([&](const std::vector<Tensor>& in) { return std::vector<Tensor>{f(in)}; },
               [&](const std::vector<Tensor>& outputs) { tape_.backward(outputs[0]); });
  compare([&] { return gradient_scale * f(inputs()).item(); }, elements);
}

}  // namespace fsdp::test
