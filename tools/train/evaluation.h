// The loss of a model on text as it is, without training: over batches from anywhere (the
// validation of `fsdp train`), and over a whole text in overlapping sequences (`fsdp eval`). Not
// here: tokens (tools/data), what one batch costs (session.h).
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "tools/engine/session.h"

namespace fsdp::tools {

// This rank's part of numbered global batches.
struct BatchSource {
  int64_t batches = 0;    // of training: as many as there are steps
  int64_t sequences = 0;  // in all batches of all ranks, of validation
  std::function<Batch(int64_t index)> get;
};

// Over all ranks.
struct TextLoss {
  double nats = 0;     // sum of -ln p
  int64_t tokens = 0;  // predicted tokens
  double mean() const { return nats / static_cast<double>(tokens); }
};

// After every batch, `goes_on` gets the number of batches so far and their loss. If it returns
// false, the remaining batches are left out; it must return the same on all ranks. Collective.
TextLoss loss_of_batches(
    Session& session, const BatchSource& source,
    const std::function<bool(int64_t batches, const TextLoss& so_far)>& goes_on);

// A text as sequences of `length` tokens. A new sequence begins every `stride` tokens (1 to
// `length`); the last sequence may be shorter. Each token is predicted once at most, in the first
// sequence in which it is not the first token. With a stride below the length, every token except
// the first of the text is predicted. With stride = length, the first token of each sequence is
// not. (transformers' "Perplexity of fixed-length models".)
struct TextSequences {
  std::span<const int32_t> tokens;  // at least 2; must outlive the batches
  int64_t length = 0;               // at least 2
  int64_t stride = 0;
  int64_t batch = 1;              // sequences at a time, over all ranks
  models::InputRules rules = {};  // of the model; without a shift every token is predicted, once

  int64_t count() const;  // of sequences
};
// Error when a length, stride or batch is out of its range.
BatchSource batches_of(const TextSequences& text, int rank, int ranks);

}  // namespace fsdp::tools
