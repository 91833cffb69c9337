// Linear layer with optional bias and activation, and the low-rank term that LoRA adds to one.
#pragma once

#include "core/autograd.h"

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

// y + scale * x W, in the memory of y; x is scaled in place and saved. Nobody else may need their
// values: what linear() has just returned. W has no bias.
Tensor add_linear(const Tensor& y,  // (..., out)
                  Tensor x,         // (..., in)
                  const LinearWeights& weights, double scale);

}  // namespace fsdp::ops
