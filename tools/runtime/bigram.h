// The yardstick that a trained model must beat: how well the frequencies of token pairs in the
// training text predict the validation text.
#pragma once

#include <cstdint>
#include <vector>

namespace fsdp::tools {

class BigramModel {
 public:
  explicit BigramModel(int64_t vocabulary);

  // Counts the pairs inside `tokens`; the pair across two calls is not counted.
  void count(const std::vector<int32_t>& tokens);
  // Sum over the pairs inside `tokens` of -log P(second | first), in nats. Add-one smoothing over
  // the tokens that were counted; one that never was costs as much as one that never followed.
  double surprise(const std::vector<int32_t>& tokens) const;

 private:
  int64_t vocabulary_;
  int64_t distinct_ = 0;
  std::vector<int64_t> pairs_;  // (vocabulary, vocabulary)
  std::vector<int64_t> firsts_; // (vocabulary)
  std::vector<bool> seen_;
};

}  // namespace fsdp::tools
