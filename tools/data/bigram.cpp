// Counting pairs and scoring with them.
#include "tools/data/bigram.h"

#include <cmath>

#include "core/error.h"
#include "tools/data/packing.h"

namespace fsdp::data {
namespace {

size_t index(int32_t token, int64_t vocabulary) {
  FSDP_CHECK(token >= 0 && token < vocabulary, "[bigram] token: expected below {}, got {}",
             vocabulary, token);
  return static_cast<size_t>(token);
}

}  // namespace

BigramModel::BigramModel(int64_t vocabulary)
    : vocabulary_(vocabulary),
      pairs_(static_cast<size_t>(vocabulary * vocabulary)),
      firsts_(static_cast<size_t>(vocabulary)),
      seen_(static_cast<size_t>(vocabulary)) {
  FSDP_CHECK(vocabulary <= kMaxVocabulary, "[bigram] vocabulary: expected at most {}, got {}",
             kMaxVocabulary, vocabulary);
}

void BigramModel::count(std::span<const int32_t> tokens) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    const size_t second = index(tokens[i], vocabulary_);
    if (!seen_[second]) ++distinct_;
    seen_[second] = true;
    if (i == 0) continue;
    const size_t first = index(tokens[i - 1], vocabulary_);
    ++pairs_[first * firsts_.size() + second];
    ++firsts_[first];
  }
}

double BigramModel::surprise(std::span<const int32_t> tokens) const {
  double sum = 0;
  for (size_t i = 1; i < tokens.size(); ++i) {
    const size_t first = index(tokens[i - 1], vocabulary_), second = index(tokens[i], vocabulary_);
    const int64_t together = pairs_[first * firsts_.size() + second] + 1;
    sum += std::log(static_cast<double>(firsts_[first] + distinct_)) -
           std::log(static_cast<double>(together));
  }
  return sum;
}

double bigram_entropy(std::span<const int32_t> training, std::span<const int32_t> validation,
                      int64_t sequence_length, int64_t vocabulary) {
  BigramModel model(vocabulary);
  model.count(training);
  const data::Packing packing{validation, sequence_length};
  double sum = 0;
  for (int64_t i = 0; i < packing.sequences(); ++i) sum += model.surprise(packing.sequence(i));
  return sum / static_cast<double>(packing.sequences() * packing.labels_per_sequence());
}

}  // namespace fsdp::data
