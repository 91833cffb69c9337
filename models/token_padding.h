// Padding that the tokens themselves say, and the rows of the position table that it leaves to the
// others. Read next: models/key_bias.h, what hides padding from attention.
#pragma once

#include <vector>

#include "models/config.h"

namespace fsdp::models {

// [Note: fairseq's padding]
// Its dictionary numbers the padding token 1, and the model looks for it in its input: padding is
// hidden from attention, its position is row 1 (which learns nothing), and the other tokens are
// counted from row 2 on without it (make_positions). Its search never chooses it either.
// Its criterion ignores padding as a target and still divides by all tokens of the block (ntokens,
// which knows of no padding within a text): so do target_labels and the mean over tokens here.
// Attention of a token that sees padding alone has no key, and would mix them all: the positions
// before a row's first other token have no target.
// Hugging Face's models are told by a mask, and count positions without one.
bool is_padding(const ModelConfig& config, int32_t token);

// 0 where a token is padding, by `mask` (empty: nowhere) or by itself; empty: no padding at all.
std::vector<int32_t> padding_mask(const ModelConfig& config, const std::vector<int32_t>& tokens,
                                  const std::vector<int32_t>& mask);

// No target for the positions of a row that see nothing but padding by `mask` (empty: none do).
void ignore_leading_padding(const ModelConfig& config, const std::vector<int32_t>& mask,
                            int64_t length, std::vector<int32_t>& targets);

// (rows, length) like `mask`: of each token the row of the position table, or its rotary position.
std::vector<int32_t> counted_positions(const ModelConfig& config, const std::vector<int32_t>& mask,
                                       int64_t length);

}  // namespace fsdp::models
