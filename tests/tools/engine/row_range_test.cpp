// Rows dealt in runs to the ranks.
#include "tools/engine/row_range.h"

#include <doctest/doctest.h>

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

}  // namespace
}  // namespace fsdp
