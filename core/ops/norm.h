// Layer norm and RMS norm, fused with the residual connection around them.
#pragma once

#include "core/autograd.h"

namespace fsdp::ops {

struct NormWeights {
  Parameter& weight;          // (C)
  Parameter* bias = nullptr;  // (C): layer norm; null: RMS norm
  double epsilon = 1e-5;
};

struct NormOutput {
  Tensor stream;  // (..., C): the residual stream x (+ residual), to carry past the norm
  Tensor y;       // (..., C): the normalised stream
};

// stream = x + residual (or x itself), y = norm(stream). The gradient of the stream is added inside
// the backward kernel, so use `stream`, not x, downstream. Saves stream and one or two statistics
// per row.
NormOutput norm(const Tensor& x, const Tensor& residual, const NormWeights& weights);

}  // namespace fsdp::ops
