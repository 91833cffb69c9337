// What a model asks of the rows that it reads: which token a position predicts, which tokens are
// padding, how positions are counted. A batch is made ready by these rules once
// (tools/engine/batch.h, make_batch), and the model computes with what it gets. Read next:
// models/key_bias.h, what hides padding from attention.
#pragma once

#include <cstdint>
#include <vector>

#include "models/config.h"

namespace fsdp::models {

// [Note: fairseq's padding]
// Its dictionary numbers the padding token 1, and the model looks for it in its input: padding is
// hidden from attention, its position is row 1 (which learns nothing), and the other tokens are
// counted from row 2 on without it (make_positions). Its search never chooses it either.
// Its criterion ignores padding as a target and still divides by all tokens of the block (ntokens,
// which knows of no padding within a text): so do predicted_targets and the mean over tokens here.
// Attention of a token that sees padding alone has no key, and would mix them all: the positions
// before a row's first other token have no target.
// Hugging Face's models are told by a mask, and count positions without one.
struct InputRules {
  bool shifted_labels = true;  // position t predicts the label of t + 1; false: its own
  int32_t padding = -1;        // the token that is padding wherever it stands; -1: none
  int32_t first_position = 0;  // of a row's first token that is not padding

  bool knows_padding() const { return padding >= 0; }
  bool is_padding(int32_t token) const { return knows_padding() && token == padding; }
  // Positions of a row without padding that have a target.
  int64_t targets_of_row(int64_t length) const { return length - (shifted_labels ? 1 : 0); }
};
InputRules input_rules(const ModelConfig& config);

// Labels of Hugging Face's form (position t holds token t) -> what each position predicts: shifted
// left, the last position of every row ignored.
std::vector<int32_t> shifted_labels(const std::vector<int32_t>& labels,  // (rows, length)
                                    int64_t rows, int64_t length);

// Documents that share a row: first_key is where the document of each token begins in its row. So
// it is not decreasing, and a document's first token is its own. Error for anything else.
void check_documents(const std::vector<int32_t>& first_key,  // (rows, length)
                     int64_t length);
// Before labels are shifted: nobody predicts the first token of a document.
void ignore_first_labels(std::vector<int32_t>& labels,           // (rows, length)
                         const std::vector<int32_t>& first_key,  // the same
                         int64_t length);
// (rows, length): as of each document in a row of its own.
std::vector<int32_t> document_positions(const InputRules& rules,
                                        const std::vector<int32_t>& first_key, int64_t length);
// The work of attention: pairs of a token and a token that it sees.
int64_t document_pairs(const std::vector<int32_t>& first_key, int64_t length);

// 0 where a token is padding, by `mask` (empty: nowhere) or by itself; empty: no padding at all.
std::vector<int32_t> padding_mask(const InputRules& rules, const std::vector<int32_t>& tokens,
                                  const std::vector<int32_t>& mask);

// What each position predicts, kIgnoreIndex: nothing. `targets` are the labels after any shift;
// padding is no target, and the positions of a row that see nothing but padding by `mask` (empty:
// none do) have none.
std::vector<int32_t> predicted_targets(const InputRules& rules, std::vector<int32_t> targets,
                                       const std::vector<int32_t>& mask, int64_t length);

// (rows, length) like `mask`: of each token the row of the position table, or its rotary position.
std::vector<int32_t> counted_positions(const InputRules& rules, const std::vector<int32_t>& mask,
                                       int64_t length);

}  // namespace fsdp::models
