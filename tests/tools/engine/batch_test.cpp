// Rows taken out of a batch.
#include "tools/engine/batch.h"

#include <doctest/doctest.h>

namespace fsdp {
namespace {

TEST_CASE("some rows of a batch: their values, and what is said of all ranks") {
  const Batch batch = {.rows = 3,
                       .length = 2,
                       .tokens = {1, 2, 3, 4, 5, 6},
                       .labels = {1, 2, 3, -100, -100, 6},
                       .samples = {10, 11, 12},
                       .mask = {},
                       .global_label_tokens = 2,
                       .gradient_factor = 3};
  const Batch part = rows_of(batch, {.first = 1, .count = 2});
  CHECK(part.rows == 2);
  CHECK(part.length == 2);
  CHECK(part.tokens == std::vector<int32_t>{3, 4, 5, 6});
  CHECK(part.labels == std::vector<int32_t>{3, -100, -100, 6});
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
