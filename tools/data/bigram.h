// The yardstick that a trained model must beat: how well the frequencies of token pairs in the
// training text predict the validation text. For small vocabularies: the table is dense.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace fsdp::data {

class BigramModel {
 public:
  static constexpr int64_t kMaxVocabulary = 1024;
  explicit BigramModel(int64_t vocabulary);

  // Counts the pairs inside `tokens`; the pair across two calls is not counted.
  void count(std::span<const int32_t> tokens);
  // Sum over the pairs inside `tokens` of -log P(second | first), in nats. Add-one smoothing over
  // the distinct tokens counted; one never counted costs as much as one that never followed.
  double surprise(std::span<const int32_t> tokens) const;

 private:
  int64_t vocabulary_;
  int64_t distinct_ = 0;
  std::vector<int64_t> pairs_;   // (vocabulary, vocabulary)
  std::vector<int64_t> firsts_;  // (vocabulary): pairs by their first token
  std::vector<bool> seen_;       // (vocabulary)
};

// Nats per prediction of `validation` cut into sequences as the model sees it (a sequence's first
// token is not predicted), by the pairs of `training`.
double bigram_entropy(std::span<const int32_t> training, std::span<const int32_t> validation,
                      int64_t sequence_length, int64_t vocabulary);

}  // namespace fsdp::data
