// Rows dealt in runs to the ranks; what a batch gets ready, and its parts.
#include "tools/engine/batch.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp {
namespace {

TEST_CASE("rows are dealt in order, each once, as evenly as possible") {
  for (int64_t rows : {0, 1, 2, 3, 5, 7, 12}) {
    for (int ranks : {1, 2, 3, 4, 7}) {
      int64_t next = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const RowRange range = deal_rows(rows, rank, ranks);
        CHECK(range.first == next);
        CHECK(range.count >= rows / ranks);
        CHECK(range.count <= (rows + ranks - 1) / ranks);
        next += range.count;
      }
      CHECK(next == rows);
    }
  }
}

TEST_CASE("some rows of a batch: their values, and what is said of all ranks") {
  const Batch batch = {.rows = 3,
                       .length = 2,
                       .tokens = {1, 2, 3, 4, 5, 6},
                       .targets = {1, 2, 3, -100, -100, 6},
                       .samples = {10, 11, 12},
                       .mask = {},
                       .global_label_tokens = 2,
                       .gradient_factor = 3};
  const Batch part = rows_of(batch, {.first = 1, .count = 2});
  CHECK(part.rows == 2);
  CHECK(part.length == 2);
  CHECK(part.tokens == std::vector<int32_t>{3, 4, 5, 6});
  CHECK(part.targets == std::vector<int32_t>{3, -100, -100, 6});
  CHECK(part.samples == std::vector<int64_t>{11, 12});
  CHECK(part.mask.empty());
  CHECK(part.global_label_tokens == 2);
  CHECK(part.gradient_factor == 3);
  Batch padded = batch;
  padded.mask = {0, 1, 0, 1, 1, 1};
  CHECK(rows_of(padded, {.first = 2, .count = 1}).mask == std::vector<int32_t>{1, 1});
  const Batch none = rows_of(batch, {.first = 3, .count = 0});
  CHECK(none.rows == 0);
  CHECK(none.length == 2);
  CHECK(none.tokens.empty());
  CHECK(none.global_label_tokens == 2);
}

TEST_CASE("rows made ready: targets by the rules of the model, and what padding takes from them") {
  using Ids = std::vector<int32_t>;
  const LabelledRows rows = {.length = 3,
                             .tokens = {5, 6, 7, 1, 8, 1},
                             .labels = {5, -100, 7, 1, 8, 1},
                             .samples = {7, 9}};
  CHECK(rows.rows() == 2);
  const Batch shifted = make_batch(rows, {}, 11);
  CHECK(shifted.rows == 2);
  CHECK(shifted.targets == Ids{-100, 7, -100, 8, 1, -100});
  CHECK(shifted.samples == std::vector<int64_t>{7, 9});
  CHECK(shifted.mask.empty());
  CHECK(shifted.positions.empty());
  CHECK(shifted.global_label_tokens == 11);
  CHECK(count_targets(shifted) == 3);
  CHECK(make_batch(rows, {.shifted_labels = false}, 0).targets == rows.labels);

  const Batch fairseq = make_batch(rows, {.padding = 1, .first_position = 2}, 4);
  CHECK(fairseq.mask == Ids{1, 1, 1, 0, 1, 0});
  CHECK(fairseq.positions == Ids{2, 3, 4, 1, 2, 1});
  CHECK(fairseq.targets == Ids{-100, 7, -100, -100, -100, -100});  // before 8 is padding alone
  const Batch second = rows_of(fairseq, {.first = 1, .count = 1});
  CHECK(second.positions == Ids{1, 2, 1});
  CHECK(count_targets(second) == 0);
  const Batch first = rows_of(fairseq, {.first = 0, .count = 1});  // it has no padding
  CHECK(first.mask.empty());
  CHECK(first.positions.empty());
}

TEST_CASE("rows made ready: documents that share a row") {
  using Ids = std::vector<int32_t>;
  const LabelledRows rows = {.length = 4,
                             .tokens = {5, 6, 8, 9, 3, 1, 1, 1},
                             .labels = {5, 6, 8, 9, 3, -100, -100, -100},
                             .samples = {7, 9},
                             .first_key = {0, 0, 2, 2, 0, 1, 1, 1}};
  for (const models::InputRules& rules :
       {models::InputRules{}, models::InputRules{.padding = 1, .first_position = 2}}) {
    const Batch batch = make_batch(rows, rules, 2);
    CHECK(batch.targets == Ids{6, -100, 9, -100, -100, -100, -100, -100});
    CHECK(batch.mask.empty());
    CHECK(batch.first_key == rows.first_key);
    const Batch second = rows_of(batch, {.first = 1, .count = 1});
    CHECK(second.first_key == Ids{0, 1, 1, 1});
    const int32_t first = rules.first_position;
    CHECK(second.positions == Ids{first, first, first + 1, first + 2});
  }
  // Labels that are targets already leave first tokens out; a token that predicts itself predicts
  // nothing behind a border.
  CHECK(make_batch(rows, {.shifted_labels = false}, 0).targets == rows.labels);
  LabelledRows targets = rows;
  targets.labels_are_targets = true;
  CHECK(make_batch(targets, {}, 0).targets == rows.labels);

  const auto refusal = [&](const std::function<void(LabelledRows&)>& change) {
    LabelledRows changed = rows;
    change(changed);
    return test::error_of([&] { make_batch(changed, {.padding = 1, .first_position = 2}, 0); });
  };
  CHECK(refusal([](LabelledRows& r) { r.first_key.pop_back(); }) ==
        "[batch] first_key: expected 8 values, got 7");
  CHECK(test::contains(refusal([](LabelledRows& r) { r.first_key[1] = 3; }),
                       "[first_key] token 1 of row 0: expected 1"));
  CHECK(test::contains(refusal([](LabelledRows& r) { r.mask.assign(8, 1); }),
                       "first_key: expected no mask"));
  CHECK(
      test::contains(refusal([](LabelledRows& r) { r.tokens[6] = 4; }),
                     "first_key: expected padding behind a document, got it within one, in row 1"));
}

TEST_CASE("rows made ready: labels that are targets are not shifted; none, and no rows") {
  using Ids = std::vector<int32_t>;
  const LabelledRows rows = {
      .length = 2, .tokens = {1, 2}, .labels = {2, 3}, .mask = {0, 1}, .labels_are_targets = true};
  CHECK(make_batch(rows, {}, 2).targets == Ids{2, 3});
  CHECK(make_batch(rows, {}, 2).mask == Ids{0, 1});
  CHECK(make_batch({.length = 2, .tokens = {1, 2}}, {}, 0).targets.empty());
  const Batch none = make_batch({.length = 2}, {}, 2);
  CHECK(none.rows == 0);
  CHECK(none.length == 2);
  CHECK(count_targets(none) == 0);
  const models::InputRules fairseq = {.padding = 1, .first_position = 2};
  const Batch unlabelled = make_batch({.length = 2, .tokens = {1, 5}}, fairseq, 0);
  CHECK(unlabelled.targets.empty());
  CHECK(unlabelled.mask == Ids{0, 1});
  const auto refusal = [&](const LabelledRows& wrong) {
    return test::error_of([&] { make_batch(wrong, {.shifted_labels = false}, 2); });
  };
  CHECK(refusal({.length = 2, .tokens = {1, 2, 3}}) == "[batch] tokens: expected 2 values, got 3");
  CHECK(refusal({.length = 2, .tokens = {1, 2}, .labels = {1}}) ==
        "[batch] labels: expected 2 values, got 1");
  CHECK(refusal({.length = 2, .tokens = {1, 2}, .samples = {1, 2}}) ==
        "[batch] samples: expected 1 values, got 2");
  CHECK(refusal({.length = 2, .tokens = {1, 2}, .mask = {1}}) ==
        "[batch] mask: expected 2 values, got 1");
}

TEST_CASE("parts of a batch: rows split evenly, or passes") {
  Batch batch = {.rows = 5, .length = 1};
  const auto counts = [&](int parts) {
    std::vector<int64_t> out;
    for (int i = 0; i < parts; ++i) {
      const RowRange range = rows_of_part(batch, i, parts);
      out.push_back(range.first * 10 + range.count);
    }
    return out;
  };
  CHECK(counts(3) == std::vector<int64_t>{2, 22, 41});
  CHECK(ranks_with_pass(batch, 2, 4) == 4);
  batch.rows_per_pass = 3;
  batch.passes = 6;
  CHECK(counts(3) == std::vector<int64_t>{3, 32, 50});
  CHECK(ranks_with_pass(batch, 0, 4) == 4);
  CHECK(ranks_with_pass(batch, 1, 4) == 2);
  CHECK(ranks_with_pass(batch, 2, 4) == 0);
  CHECK(rows_of(batch, {.first = 0, .count = 3}).passes == 6);
}

}  // namespace
}  // namespace fsdp
