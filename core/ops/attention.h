// Attention and rotary positions on head views of activations.
#pragma once

#include "core/autograd.h"

namespace fsdp::ops {

struct RopeTables {
  Tensor cos;  // (positions, rotary_dim / 2), accumulation dtype
  Tensor sin;
};

// Rotates the heads of `x` (a view of `tensor`) in place; the result shares tensor's memory, and
// tensor itself must not be used afterwards. Saves nothing. `view.tensor` is ignored.
Tensor rope(const Tensor& tensor,  // (B, T, row_width)
            HeadView view, const RopeTables& tables);

// softmax(scale q k^T) v; see AttentionArgs. The views may be of one packed tensor or of several.
// Saves q, k, v, the output and one log-sum-exp per query and head. key_bias has no gradient.
Tensor attention(const AttentionArgs& args);  // -> (B, Tq, heads * head_dim)

}  // namespace fsdp::ops
