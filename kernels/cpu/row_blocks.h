// How rows are cut into blocks whose partial sums are added in order: the same on any number of
// threads. Read by the kernels that sum rows (reduce.cpp, norm.cpp) and by what says how much
// scratch memory they want (scratch.cpp).
#pragma once

#include <algorithm>
#include <cstdint>

namespace fsdp::cpu {

struct RowBlocks {
  int64_t rows_each, count;
  RowBlocks(int64_t rows, int64_t least)
      : rows_each(std::max(least, (rows + kMost - 1) / kMost)),
        count((rows + rows_each - 1) / rows_each) {}
  static constexpr int64_t kMost = 64;  // bounds the scratch: 64 rows of partial sums
};
constexpr int64_t kLeastSummedRows = 32;  // of a block of sum_rows
constexpr int64_t kLeastNormRows = 8;     // of norms' backward

}  // namespace fsdp::cpu
