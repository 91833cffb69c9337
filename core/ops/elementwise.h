// Element-wise ops: residual add, activation, gated linear units, dropout.
#pragma once

#include "core/layer_values.h"
#include "core/module.h"

namespace fsdp::ops {

Tensor add(const Tensor& a, const Tensor& b);  // same shape and dtype; saves nothing

// activation(x); x itself for kNone. Saves x. Where x is a linear layer's result alone, linear()
// does both at once.
Tensor activate(const Tensor& x, Activation activation);

// A gated linear unit: activation(gate) * up, with kNone gate * up. Saves gate and up.
Tensor glu(const Tensor& gate,  // (..., F)
           const Tensor& up,    // (..., F)
           Activation activation = Activation::kSilu);
// The same of both in one tensor's rows, gate first. Saves that tensor, and may write its gradient
// over it.
Tensor glu_of_halves(const Tensor& gate_up,  // (..., 2 F) -> (..., F)
                     Activation activation);

// Dropout places of a model: part of the random key, so their order must never change.
enum class DropoutSite : uint8_t {
  kEmbedding,
  kAttentionWeights,
  kAttentionOutput,
  kMlpOutput,
  kAdapterInput,  // "layer" is the number of the linear layer in the model
  kMlpInner       // behind the activation
};

// The kernel arguments of dropout at (layer, site) in this pass; probability 0 outside training.
Dropout dropout_args(const ForwardContext& context, double probability, int64_t layer,
                     DropoutSite site);

// Zeroes elements at random, the same ones in backward and recompute. Saves nothing but the key.
Tensor dropout(const Tensor& x,  // (B, ...)
               const Dropout& args);

}  // namespace fsdp::ops
