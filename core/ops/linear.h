// Linear layer with optional bias and activation, and the low-rank term that LoRA adds to one.
#pragma once

#include <vector>

#include "core/autograd.h"
#include "core/layer_values.h"

namespace fsdp::ops {

enum class WeightLayout : uint8_t {
  kOutIn,  // W (out, in), y = x W^T: everything but GPT-2
  kInOut,  // W (in, out), y = x W: GPT-2's Conv1D
};

struct LinearWeights {
  Parameter& weight;          // (out, in) or (in, out)
  Parameter* bias = nullptr;  // (out)
  WeightLayout layout = WeightLayout::kOutIn;
};

// y (..., out) = activation(x W + b). Saves x, and x W + b when there is an activation.
Tensor linear(const Tensor& x,  // (..., in)
              const LinearWeights& weights, Activation activation = Activation::kNone);

// The same of several layers at once, each (out, in): their results side by side in rows,
// (..., sum of out). One product forward, one each for the gradients of x and of the weights.
// Error unless side_by_side(layers).
Tensor linear(const Tensor& x,  // (..., in)
              const std::vector<LinearWeights>& layers);
// Whether that is possible: the weights lie side by side in memory, the biases, of all or none, too
// (core/parameter_span.h).
bool side_by_side(const std::vector<LinearWeights>& layers);

// y + scale * x W, in the memory of y; x is scaled in place and saved. Nobody else may need their
// values: what linear() has just returned. W has no bias.
Tensor add_linear(const Tensor& y,  // (..., out)
                  Tensor x,         // (..., in)
                  const LinearWeights& weights, double scale);

}  // namespace fsdp::ops
