// Sums over batches, and the sequences of a text.
#include "tools/train/evaluation.h"

#include <algorithm>

#include "core/ops/cross_entropy.h"
#include "core/text/counted.h"
#include "tools/engine/batch.h"

namespace fsdp::tools {
namespace {

int64_t size_of_text(const TextSequences& text) { return static_cast<int64_t>(text.tokens.size()); }

// The label tokens of sequence `index`: its tokens [first, end).
struct Predicted {
  int64_t first = 0, end = 0;
  int64_t count() const { return std::max<int64_t>(end - first, 0); }
};

Predicted predicted_by(const TextSequences& text, int64_t index) {
  const int64_t overlap = index == 0 ? 0 : text.length - text.stride;
  return {std::max<int64_t>(overlap, text.rules.shifted_labels ? 1 : 0),
          std::min(text.length, size_of_text(text) - index * text.stride)};
}

void append_sequence(const TextSequences& text, int64_t index, LabelledRows& out) {
  const int64_t begin = index * text.stride;
  const Predicted predicted = predicted_by(text, index);
  for (int64_t t = 0; t < out.length; ++t) {
    const bool there = begin + t < size_of_text(text);  // behind the end nothing is asked
    const int32_t token = there ? text.tokens[static_cast<size_t>(begin + t)] : 0;
    out.tokens.push_back(token);
    out.labels.push_back(t >= predicted.first && t < predicted.end ? token : kIgnoreIndex);
  }
}

}  // namespace

TextLoss loss_of_batches(Session& session, const BatchSource& source,
                         const std::function<bool(int64_t, const TextLoss&)>& goes_on) {
  TextLoss loss;
  for (int64_t i = 0; i < source.batches; ++i) {
    const Batch batch = source.get(i);
    if (batch.global_label_tokens > 0) {  // else no rank has anything to predict
      loss.nats += session.evaluate(batch) * static_cast<double>(batch.global_label_tokens);
    }
    loss.tokens += batch.global_label_tokens;
    if (!goes_on(i + 1, loss)) break;
  }
  return loss;
}

int64_t TextSequences::count() const {
  const int64_t behind_first = std::max<int64_t>(size_of_text(*this) - length, 0);
  return 1 + (behind_first + stride - 1) / stride;
}

BatchSource batches_of(const TextSequences& text, int rank, int ranks) {
  FSDP_CHECK(text.length >= 2, "--sequence-length: expected at least 2, got {}", text.length);
  FSDP_CHECK(text.stride >= 1 && text.stride <= text.length,
             "--stride: expected 1 to the sequence length of {}, got {}", text.length, text.stride);
  FSDP_CHECK(text.tokens.size() >= 2, "the text has {}: expected at least 2",
             counted(std::ssize(text.tokens), "token"));
  const auto get = [=](int64_t number) {
    const int64_t first = number * text.batch;
    const int64_t rows = std::min(text.batch, text.count() - first);
    const RowRange mine = deal_rows(rows, rank, ranks);
    LabelledRows own = {.length = std::min(text.length, size_of_text(text))};
    for (int64_t row = 0; row < mine.count; ++row) {
      append_sequence(text, first + mine.first + row, own);
    }
    int64_t predicted = 0;  // by all ranks
    for (int64_t row = 0; row < rows; ++row) predicted += predicted_by(text, first + row).count();
    return make_batch(std::move(own), text.rules, predicted);
  };
  return {.batches = (text.count() + text.batch - 1) / text.batch, .get = get};
}

}  // namespace fsdp::tools
