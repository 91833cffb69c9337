// Token (and learned position) embedding.
#pragma once

#include "core/autograd.h"

namespace fsdp::ops {

struct EmbeddingOptions {
  double scale = 1;            // of the token rows
  int64_t first_position = 0;  // row of position 0; the rows before it have no gradient
};

// scale * table[tokens] (+ positions[first_position + t]). Saves the tokens.
Tensor embedding(const Tensor& tokens,                   // (B, T), i32
                 Parameter& table,                       // (V, C)
                 Parameter* positions = nullptr,         // (P, C), P >= first_position + T
                 const EmbeddingOptions& options = {});  // -> (B, T, C)

}  // namespace fsdp::ops
