// Sequences of several documents that do not see each other, with first_key (tools/engine/batch.h):
// rows that share one by their lengths alone (bins.h), so that nothing is saved, and parts of a
// stream. Not here: tokens and labels of a row (row_layout.h), positions
// (models/input_rules.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "tools/data/sequences.h"

namespace fsdp::data {

struct PackedOptions {
  int64_t length = 0;        // of all sequences, in tokens
  int64_t window = 100'000;  // rows; see pack_rows
  LongRows long_rows = LongRows::kCut;
  int32_t pad_token = 0;
};

// `rows`: a sequence for each row, as example_sequences has them, without a mask. The rest of a
// sequence is padding, a document of its own. With kFail, rows that are longer are cut too: the
// caller has looked for them (first_long_row).
std::shared_ptr<const Sequences> packed_sequences(std::shared_ptr<const Sequences> rows,
                                                  const PackedOptions& options);

// Sequences of a stream whose documents do not see each other; `document_end` is the last token of
// each. A document that continues in the next sequence begins again there.
std::shared_ptr<const Sequences> parted_sequences(std::shared_ptr<const Sequences> stream,
                                                  int32_t document_end);

// The first row of more than `length` tokens; -1: none.
int64_t first_long_row(const Sequences& rows, int64_t length);

// How many documents end within an average sequence of `length` tokens, where `separator` ends each
// document; the end of all tokens does not count.
double borders_of_documents(std::span<const int32_t> tokens, int32_t separator, int64_t length);

}  // namespace fsdp::data
