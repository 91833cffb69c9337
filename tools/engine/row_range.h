// Which rows of a batch are whose when every rank gets a run of them.
#pragma once

#include <algorithm>
#include <cstdint>

namespace fsdp {

struct RowRange {
  int64_t first = 0;
  int64_t count = 0;
};

// Consecutive rows, as evenly as possible, earlier ranks first; a rank may get none.
inline RowRange deal_rows(int64_t rows, int rank, int ranks) {
  const int64_t each = rows / ranks, left_over = rows % ranks;
  return {rank * each + std::min<int64_t>(rank, left_over), each + (rank < left_over ? 1 : 0)};
}

}  // namespace fsdp
