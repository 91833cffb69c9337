// Token (and learned position) embedding.
#pragma once

#include "core/autograd.h"

namespace fsdp::ops {

struct EmbeddingOptions {
  double scale = 1;                      // of the token rows
  int64_t first_position = 0;            // row of position 0; the rows before it have no gradient
  const Tensor* position_ids = nullptr;  // (B, T), i32, rows of the position table; null: from
                                         // first_position on, in every row
  // The row of the token table that gets no gradient, as PyTorch's padding_idx; -1: none.
  int64_t padding_row = -1;
};

// scale * table[tokens] (+ positions[position id]). Saves tokens and ids.
Tensor embedding(const Tensor& tokens,                   // (B, T), i32
                 Parameter& table,                       // (V, C)
                 Parameter* positions = nullptr,         // (P, C), P > each id
                 const EmbeddingOptions& options = {});  // -> (B, T, C)

}  // namespace fsdp::ops
