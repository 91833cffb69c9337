// The sequences that a data set is dealt out in, by number: cut from a stream, one for each row,
// cut from 1,000 rows at a time, or random tokens. Read next: row_layout.h, packing.h, loader.h.
// Not here: which sequences a batch has (sampler.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "models/input_rules.h"
#include "tools/data/objective.h"
#include "tools/data/row_encoder.h"
#include "tools/data/row_layout.h"
#include "tools/engine/batch.h"

namespace fsdp::data {

using models::InputRules;

class Sequences {
 public:
  virtual ~Sequences() = default;
  virtual int64_t count() const = 0;
  // Tokens of a sequence without padding, at most `length`.
  virtual int64_t tokens_of(int64_t index, int64_t length) const = 0;
  // Labels that count of a sequence in a batch of this length.
  virtual int64_t label_tokens(int64_t index, int64_t length, const InputRules& rules) const = 0;
  // Whether there is one.
  virtual bool is_trained(int64_t index, int64_t length, const InputRules& rules) const {
    return label_tokens(index, length, rules) > 0;
  }
  // Appends its tokens, its labels and, where padding must be hidden, its mask.
  virtual void append(int64_t index, int64_t length, const InputRules& rules,
                      LabelledRows& out) const = 0;
  // What they are made of and what was done with it, for people: "7 rows, 2 of them cut to 512
  // tokens".
  virtual std::string summary() const = 0;
};

// How many of the first `count` sequences have no label that counts, and the first of these.
struct Untrained {
  int64_t count = 0, first = -1;
};
Untrained count_untrained(const Sequences& sequences, int64_t count, int64_t length,
                          const InputRules& rules);

// Files of tokens as they are read: tokens [first, first + count) are announced first.
struct TokenRows {
  std::span<const int32_t> tokens;
  std::span<const ExampleSpan> examples = {};
  std::span<const RowTurn> turns = {};   // of all rows, of RowForm::kTurns
  std::vector<size_t> first_turns = {};  // of each row
  std::function<void(size_t first, size_t count)> before_use = nullptr;

  // Finds the turns of each row.
  void set_turns(std::span<const RowTurn> all);
  // The tokens of a row, announced.
  Example example(int64_t row) const;
  std::span<const RowTurn> turns_of_row(int64_t row) const;
  int64_t tokens_of_row(int64_t row) const;
};

// `length`: of all sequences.
std::shared_ptr<const Sequences> stream_sequences(const TokenRows& rows, int64_t length);
// A sequence for each row.
std::shared_ptr<const Sequences> example_sequences(const TokenRows& rows, int64_t length,
                                                   const RowLayout& layout);
// Rows cut to `length`; each 1,000 of them as a stream, whose rest is dropped: Hugging Face's map()
// in batches, as recipes for wikitext do.
std::shared_ptr<const Sequences> wikitext_sequences(const TokenRows& rows, int64_t length);
// Random tokens below `vocabulary`, by seed, sequence and position.
std::shared_ptr<const Sequences> synthetic_sequences(int64_t count, int64_t vocabulary,
                                                     uint64_t seed);
// Sequences [first, first + count) of others, in their order or in one by seed.
std::shared_ptr<const Sequences> part_of_sequences(std::shared_ptr<const Sequences> all,
                                                   int64_t first, int64_t count,
                                                   std::optional<uint64_t> seed);

// All sequences of several sets, one set after the other.
std::shared_ptr<const Sequences> joined_sequences(
    std::vector<std::shared_ptr<const Sequences>> sets);

}  // namespace fsdp::data
