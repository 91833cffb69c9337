// Attention and rotary positions on head views of activations.
#pragma once

#include "core/autograd.h"
#include "core/layer_values.h"

namespace fsdp {
struct AttentionArgs;
}

namespace fsdp::ops {

// Accumulation dtype; by position (positions, rotary_dim / 2), or by token (B, T, rotary_dim / 2).
struct RopeTables {
  Tensor cos;
  Tensor sin;
};

// By token, from tables by position.
RopeTables rope_tables_at(const RopeTables& tables,
                          const Tensor& positions);  // (B, T), i32, below the tables' rows

// Rotates the heads of `x` (a view of `tensor`) in place; the result shares tensor's memory, and
// tensor itself must not be used afterwards. Saves nothing. `view.tensor` is ignored. With tables
// by position, token t of a row is at position t.
Tensor rope(const Tensor& tensor,  // (B, T, row_width)
            HeadView view, const RopeTables& tables);

// softmax(scale q k^T) v; see AttentionArgs. The views may be of one packed tensor or of several.
// Saves q, k, v, the output and one log-sum-exp per query and head. key_bias has no gradient.
// first_key: with a causal mask, without a cache, and not with a bias that hides keys.
//
// [Note: a query that sees no key]
// Padding in front of a text leaves queries all of whose keys are hidden. Masks that add the
// smallest finite number make the scores of such a query equal: it averages the values of all Tk
// keys, later ones too (transformers 4.57, eager: Llama, Mistral, BLOOM, GPT-NeoX). So does this
// op; its backward is the softmax's at weights 1 / Tk. Other values exist: eager GPT-2 averages
// keys up to the query only (its causal mask is one more), fused attention gives zeros. Nothing
// depends on these rows unless one of them is to predict a label.
Tensor attention(const AttentionArgs& args);  // -> (B, Tq, heads * head_dim)

}  // namespace fsdp::ops
