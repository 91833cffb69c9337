// Rows that hold several documents, each document as a row of its own, and models of every family.
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
// All of five rows, with 7, 9, 11, 1 and 8 targets: a mean of means over them is another one.
constexpr Document kDocuments[] = {
    {0, 0, 5}, {0, 5, 4}, {0, 9, 3, true}, {1, 0, 2}, {1, 2, 9}, {1, 11, 1}, {2, 0, 12},
    {3, 0, 1}, {3, 1, 2}, {3, 3, 9, true}, {4, 0, 3}, {4, 3, 3}, {4, 6, 3},  {4, 9, 3}};

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

// Every family: with learned, rotary and ALiBi positions, and without any. Windows shorter than
// most documents, and longer; a model that predicts the token where it stands.
inline std::vector<models::ModelConfig> document_models() {
  std::vector<models::ModelConfig> all = tiny_of_every_family();
  models::ModelConfig narrow = tiny_llama(), wide = tiny_llama(), own = tiny_workshop();
  narrow.window = 3;
  wide.window = 10;
  own.shifted_labels = false;
  all.insert(all.end(), {narrow, wide, own});
  for (models::ModelConfig& config : all) {
    config.embedding_dropout = config.attention_dropout = 0;
    config.residual_dropout = config.mlp_dropout = 0;
  }
  return all;
}

}  // namespace fsdp::test
