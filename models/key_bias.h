// What is added to attention scores by key alone: padding, which hides it, and ALiBi. Read next:
// AttentionArgs::key_bias (core/ops/attention.h). Not here: rotary positions (rope.cpp).
#pragma once

#include <vector>

#include "core/tensor.h"
#include "models/config.h"

namespace fsdp::models {

// Slope of each head: what ALiBi adds to a score is slope * position of the key (Press et al. 2022,
// arXiv 2108.12409), also for head counts that are no power of two.
std::vector<double> alibi_slopes(int64_t heads);

// (rows, heads or 1, length) in `dtype`. `mask` (rows, length): 0 where a row is padded; ALiBi
// counts the others.
Tensor make_key_bias(const ModelConfig& config, Backend& backend, DType dtype,
                     const std::vector<int32_t>& mask, int64_t rows);

}  // namespace fsdp::models
