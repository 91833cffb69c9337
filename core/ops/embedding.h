// Token (and learned position) embedding.
#pragma once

#include "core/autograd.h"

namespace fsdp::ops {

// table[tokens] (+ positions[t]). Saves the tokens.
Tensor embedding(const Tensor& tokens,                 // (B, T), i32
                 Parameter& table,                     // (V, C)
                 Parameter* positions = nullptr);      // (P, C), P >= T
                                                       // -> (B, T, C)

}  // namespace fsdp::ops
