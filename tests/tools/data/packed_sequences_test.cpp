// ShortRows that share a sequence: their tokens, labels and first_key; rows at the limits; the same
// labels as of each row alone.
#include "tools/data/packed_sequences.h"

#include <algorithm>
#include <map>

#include <doctest/doctest.h>

#include "core/error.h"
#include "core/layer_values.h"
#include "tests/support/lengths_of_rows.h"
#include "tests/support/temp_folder.h"
#include "tools/data/loader.h"

namespace fsdp::data {
namespace {

using Ids = std::vector<int32_t>;
constexpr int32_t kPad = 99;

struct ShortRows {
  Ids tokens;
  std::vector<ExampleSpan> spans;

  explicit ShortRows(const std::vector<Ids>& rows = {}) {
    for (const Ids& ids : rows) add(ids);
  }
  void add(const Ids& ids, uint32_t kept = 0, uint32_t answer = 0) {
    tokens.insert(tokens.end(), ids.begin(), ids.end());
    spans.push_back({tokens.size(), kept, answer});
  }
  // A sequence for each row.
  std::shared_ptr<const Sequences> apart(int64_t length, Objective objective = {}) const {
    return example_sequences({.tokens = tokens, .examples = spans}, length,
                             {.objective = objective, .pad_token = kPad});
  }
  std::shared_ptr<const Sequences> packed(int64_t length, Objective objective = {},
                                          int64_t window = 100'000,
                                          LongRows long_rows = LongRows::kCut) const {
    return packed_sequences(
        apart(length, objective),
        {.length = length, .window = window, .long_rows = long_rows, .pad_token = kPad});
  }
};

LabelledRows sequence_of(const Sequences& sequences, int64_t index, int64_t length,
                         const InputRules& rules = {}) {
  LabelledRows out;
  sequences.append(index, length, rules, out);
  return out;
}

TEST_CASE("packed rows: tokens, labels, and where each document begins") {
  const ShortRows rows({{5, 6, 7}, {8, 9}});
  const auto packed = rows.packed(8);
  REQUIRE(packed->count() == 1);
  LabelledRows row = sequence_of(*packed, 0, 8);
  CHECK(row.tokens == Ids{5, 6, 7, 8, 9, kPad, kPad, kPad});
  CHECK(row.first_key == Ids{0, 0, 0, 3, 3, 5, 5, 5});
  CHECK(row.labels == Ids{-100, 6, 7, -100, 9, -100, -100, -100});
  CHECK(row.mask.empty());
  CHECK(packed->tokens_of(0, 8) == 5);
  CHECK(packed->label_tokens(0, 8, {}) == 3);
  CHECK(packed->summary() == "2 rows in 1 sequence of 8 tokens, 62.5 % filled");
  // A second sequence in the batch counts from its own first token.
  packed->append(0, 8, {}, row);
  CHECK(row.first_key == Ids{0, 0, 0, 3, 3, 5, 5, 5, 0, 0, 0, 3, 3, 5, 5, 5});
  // A label of its own position is not another document's.
  const InputRules own{.shifted_labels = false};
  CHECK(sequence_of(*packed, 0, 8, own).labels == Ids{5, 6, 7, 8, 9, -100, -100, -100});
  CHECK(packed->label_tokens(0, 8, own) == 5);
  CHECK_THROWS_AS(sequence_of(*packed, 0, 7), Error);
}

TEST_CASE("packed rows: a row that is too long is cut, left out, or looked for") {
  const ShortRows rows({{1, 2, 3, 4, 5}, {6, 7}, {8, 9, 10}, {11}});
  const auto cut = rows.packed(4);
  REQUIRE(cut->count() == 3);
  CHECK(sequence_of(*cut, 0, 4).tokens == Ids{1, 2, 3, 4});
  CHECK(sequence_of(*cut, 1, 4).tokens == Ids{8, 9, 10, 11});
  CHECK(sequence_of(*cut, 1, 4).first_key == Ids{0, 0, 0, 3});
  CHECK(sequence_of(*cut, 2, 4).tokens == Ids{6, 7, kPad, kPad});
  CHECK(cut->summary() ==
        "4 rows in 3 sequences of 4 tokens, 83.3 % filled; 1 row cut, 1 token lost, the longest "
        "row has 5");
  const auto dropped = rows.packed(4, {}, 100, LongRows::kDrop);
  REQUIRE(dropped->count() == 2);
  CHECK(sequence_of(*dropped, 0, 4).tokens == Ids{8, 9, 10, 11});
  CHECK(dropped->summary() ==
        "4 rows in 2 sequences of 4 tokens, 75.0 % filled; 1 row left out, 5 tokens lost, the "
        "longest row has 5");
  CHECK(first_long_row(*rows.apart(4), 4) == 0);
  CHECK(first_long_row(*rows.apart(5), 5) == -1);
}

TEST_CASE("packed rows: of no token and of one, all alike, each in a window of its own") {
  const ShortRows rows({{}, {1}, {}, {2}, {3, 4}});
  const auto packed = rows.packed(4);
  REQUIRE(packed->count() == 1);
  CHECK(sequence_of(*packed, 0, 4).tokens == Ids{3, 4, 1, 2});
  CHECK(sequence_of(*packed, 0, 4).labels == Ids{-100, 4, -100, -100});
  CHECK(sequence_of(*packed, 0, 4).first_key == Ids{0, 0, 2, 3});
  CHECK(packed->summary() ==
        "5 rows in 1 sequence of 4 tokens, 100.0 % filled; 2 rows without a token");
  CHECK(rows.packed(4, {}, 1)->count() == 3);
  CHECK_FALSE(rows.packed(4, {}, 1)->is_trained(0, 4, {}));
  CHECK(ShortRows(std::vector<Ids>(6, Ids{1, 2})).packed(4)->count() == 3);
  CHECK(ShortRows(std::vector<Ids>(1)).packed(4)->count() == 0);
}

// The labels of a row are its own wherever it stands, and so is whether they count.
TEST_CASE("packed rows: every row once, with the labels that it has alone") {
  for (const Objective objective : {Objective::kLm, Objective::kSft, Objective::kMaskPad}) {
    ShortRows rows;
    int32_t next = 100;
    for (const uint32_t length : test::lengths_of_rows(300, 4)) {
      Ids ids(length / 8);
      std::generate(ids.begin(), ids.end(), [&] { return next++; });
      const auto answer = static_cast<uint32_t>(ids.size() / 3);
      rows.add(ids, std::min<uint32_t>(answer + 1, static_cast<uint32_t>(ids.size())), answer);
    }
    const auto apart = rows.apart(40, objective), packed = rows.packed(40, objective);
    std::map<int32_t, int32_t> alone, shared;  // label of each token
    int64_t counted = 0, of_rows = 0, predicted = 0;
    for (int64_t i = 0; i < apart->count(); ++i) {
      const int64_t length = apart->tokens_of(i, 40);
      const LabelledRows row = sequence_of(*apart, i, length);
      for (size_t t = 0; t < row.tokens.size(); ++t) {
        alone[row.tokens[t]] = t == 0 ? kIgnoreIndex : row.labels[t];
      }
      of_rows += apart->label_tokens(i, length, {});
    }
    for (int64_t i = 0; i < packed->count(); ++i) {
      const LabelledRows row = sequence_of(*packed, i, 40);
      for (size_t t = 0; t < row.tokens.size(); ++t) {
        if (row.tokens[t] != kPad) CHECK(shared.emplace(row.tokens[t], row.labels[t]).second);
        predicted += row.labels[t] != kIgnoreIndex;
      }
      counted += packed->label_tokens(i, 40, {});
      CHECK(packed->is_trained(i, 40, {}) == (packed->label_tokens(i, 40, {}) > 0));
    }
    CHECK(shared == alone);
    CHECK(counted == of_rows);
    CHECK(predicted == of_rows);
  }
}

// Nothing but the lengths decides, so a batch is the same on any number of ranks.
TEST_CASE("packed rows: batches of one, two and three ranks") {
  ShortRows rows;
  for (const uint32_t length : test::lengths_of_rows(60, 8)) rows.add(Ids(length / 8, 7));
  std::vector<std::vector<Ids>> seen;
  for (const int world : {1, 2, 3}) {
    std::vector<Ids> all;
    for (int64_t step = 0; step < 4; ++step) {
      for (int rank = 0; rank < world; ++rank) {
        const Loader loader({.sequences = rows.packed(48),
                             .sequence_length = 48,
                             .batch = 3,
                             .seed = 5,
                             .rank = rank,
                             .world = world});
        const LabelledRows batch = loader.rows(step);
        CHECK(batch.length == 48);
        for (int64_t row = 0; row < batch.rows(); ++row) {
          const auto begin = batch.first_key.begin() + row * 48;
          all.emplace_back(begin, begin + 48);
        }
      }
    }
    std::ranges::sort(all);
    seen.push_back(all);
  }
  CHECK(seen[1] == seen[0]);
  CHECK(seen[2] == seen[0]);
}

TEST_CASE("packed rows: borders of documents in a stream") {
  const Ids tokens = {1, 2, 0, 3, 0, 4, 5, 0};  // the last border is no border
  CHECK(borders_of_documents(tokens, 0, 4) == doctest::Approx(1));
  CHECK(borders_of_documents(Ids{1, 0}, 0, 4) == 0);
  CHECK(borders_of_documents({}, 0, 4) == 0);
}

}  // namespace
}  // namespace fsdp::data
