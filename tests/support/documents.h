// Rows that hold several documents, each document as a row of its own, and models of all kinds of
// positions and windows.
#pragma once

#include "core/layer_values.h"
#include "tests/support/tensors.h"
#include "tests/support/tiny_models.h"
#include "tools/engine/batch.h"

namespace fsdp::test {

constexpr int64_t kDocumentLength = 12;  // of a row

struct Document {
  int64_t row, begin, length;
  bool padding = false;
};
// All of two rows.
constexpr Document kDocuments[] = {{0, 0, 5}, {0, 5, 4}, {0, 9, 3, true},
                                   {1, 0, 2}, {1, 2, 9}, {1, 11, 1}};

// Tokens from 2 on; 1 is padding to some models.
inline LabelledRows packed_rows(int64_t vocabulary) {
  LabelledRows out = {.length = kDocumentLength};
  for (const Document& document : kDocuments) {
    const auto seed = static_cast<uint64_t>(out.tokens.size());
    const auto most = static_cast<double>(vocabulary);
    for (const double token : random_values(document.length, seed, 2, most)) {
      out.tokens.push_back(static_cast<int32_t>(token));
      out.labels.push_back(document.padding ? kIgnoreIndex : out.tokens.back());
      out.first_key.push_back(static_cast<int32_t>(document.begin));
    }
  }
  return out;
}

// Padded behind to `length`; 0: not at all.
inline LabelledRows row_of(const LabelledRows& packed, const Document& document,
                           int64_t length = 0) {
  const auto size = static_cast<size_t>(length > 0 ? length : document.length);
  const auto part_of = [&](const std::vector<int32_t>& all, int32_t behind) {
    const auto begin = all.begin() + document.row * kDocumentLength + document.begin;
    std::vector<int32_t> part(begin, begin + document.length);
    part.resize(size, behind);
    return part;
  };
  return {.length = static_cast<int64_t>(size),
          .tokens = part_of(packed.tokens, 0),
          .labels = part_of(packed.labels, kIgnoreIndex)};
}

// One of every kind of position; windows shorter than most documents, and longer than all.
inline std::vector<models::ModelConfig> document_models() {
  models::ModelConfig narrow = tiny_llama(), wide = tiny_llama();
  narrow.window = 3;
  wide.window = 10;
  std::vector<models::ModelConfig> all = {tiny_llama(), tiny_gpt2(), tiny_bloom(),  narrow,
                                          wide,         tiny_neox(), tiny_fairseq()};
  for (models::ModelConfig& config : all) {
    config.embedding_dropout = config.attention_dropout = 0;
    config.residual_dropout = config.mlp_dropout = 0;
  }
  return all;
}

}  // namespace fsdp::test
