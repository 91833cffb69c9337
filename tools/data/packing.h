// Cutting a stream of tokens into sequences. Documents follow one another without padding; a
// sequence may begin and end inside one. Sequences do not overlap and the rest is dropped.
// Labels are the sequence itself: position t predicts token t + 1, the model shifts, so a sequence
// of T tokens has T - 1 predictions. (The convention of Hugging Face's causal models.)
#pragma once

#include <cstdint>
#include <span>

namespace fsdp::data {

struct Packing {
  std::span<const int32_t> tokens;
  int64_t sequence_length = 0;

  int64_t sequences() const { return static_cast<int64_t>(tokens.size()) / sequence_length; }
  int64_t dropped() const { return static_cast<int64_t>(tokens.size()) % sequence_length; }
  std::span<const int32_t> sequence(int64_t index) const {
    return tokens.subspan(static_cast<size_t>(index * sequence_length),
                          static_cast<size_t>(sequence_length));
  }
  int64_t labels_per_sequence() const { return sequence_length - 1; }
};

}  // namespace fsdp::data
