// Rows of any length as sequences that are nearly full: which rows go into which sequence. A pure
// function of the lengths. Not here: what of a row that is too long remains (row_layout.h), the
// tokens of a packed sequence (packed_sequences.h).
// Source: best fit decreasing (Johnson, "Near-optimal bin packing algorithms", 1973), in windows of
// rows so that neighbours in the files stay near each other.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace fsdp::data {

struct Bins {
  std::vector<uint32_t> rows;  // of all bins, in order of insertion
  std::vector<uint64_t> ends;  // of each bin, in `rows`

  int64_t count() const { return static_cast<int64_t>(ends.size()); }
  std::span<const uint32_t> rows_of(int64_t bin) const;
};

// Rows of a window of `window` rows in order of falling length (longer ones are cut to `capacity`),
// ties by row number; each goes into the open bin of the window with the least room that is enough,
// ties to the earlier bin, else into a new bin. A row of length 0 is in no bin. Bins in order of
// creation. n log n. Error for a window below 1 and for sizes beyond 32 bits.
Bins pack_rows(std::span<const uint32_t> lengths, int64_t capacity, int64_t window);

}  // namespace fsdp::data
