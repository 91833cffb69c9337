// Contract: tools/data/bins.h.
#include "tools/data/bins.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "core/error.h"

namespace fsdp::data {
namespace {

// The rows of one window, dealt to bins that are numbered from 0.
class Window {
 public:
  Window(std::span<const uint32_t> lengths, uint32_t first, uint32_t capacity)
      : lengths_(lengths), first_(first), capacity_(capacity) {
    for (uint32_t row = 0; row < lengths.size(); ++row) {
      if (length(row) > 0) order_.push_back(row);
    }
    std::ranges::stable_sort(order_, std::greater(), [&](uint32_t row) { return length(row); });
  }

  void append_to(Bins& out) {
    std::vector<uint32_t> bins;  // of each row, in order of insertion
    for (const uint32_t row : order_) bins.push_back(bin_for(length(row)));
    std::vector<uint64_t> ends(count_);
    for (const uint32_t bin : bins) ++ends[bin];
    const uint64_t before = out.rows.size();
    std::exclusive_scan(ends.begin(), ends.end(), ends.begin(), before);
    out.rows.resize(before + order_.size());
    for (size_t i = 0; i < order_.size(); ++i) out.rows[ends[bins[i]]++] = first_ + order_[i];
    out.ends.insert(out.ends.end(), ends.begin(), ends.end());
  }

 private:
  uint32_t length(uint32_t row) const { return std::min(lengths_[row], capacity_); }

  uint32_t bin_for(uint32_t length) {
    std::pair<uint32_t, uint32_t> place;
    const auto found = open_.lower_bound({length, 0});
    if (found == open_.end()) {
      place = {capacity_, count_++};
    } else {
      place = *found;
      open_.erase(found);
    }
    const auto [room, bin] = place;
    if (room > length) open_.insert({room - length, bin});
    return bin;
  }

  std::span<const uint32_t> lengths_;
  uint32_t first_, capacity_;
  std::vector<uint32_t> order_;
  std::set<std::pair<uint32_t, uint32_t>> open_;  // room, bin; without full bins
  uint32_t count_ = 0;
};

}  // namespace

std::span<const uint32_t> Bins::rows_of(int64_t bin) const {
  const auto at = static_cast<size_t>(bin);
  const uint64_t begin = at == 0 ? 0 : ends[at - 1];
  return std::span(rows).subspan(begin, ends[at] - begin);
}

Bins pack_rows(std::span<const uint32_t> lengths, int64_t capacity, int64_t window) {
  FSDP_CHECK(capacity >= 1 && capacity <= UINT32_MAX && window >= 1 && lengths.size() <= UINT32_MAX,
             "[data] pack_rows: expected fewer than 2^32 rows and tokens of a bin, and a window of "
             "at least one row; got {} rows, {} tokens, a window of {}",
             lengths.size(), capacity, window);
  Bins out;
  out.rows.reserve(lengths.size());
  for (size_t first = 0; first < lengths.size(); first += static_cast<size_t>(window)) {
    const size_t count = std::min(lengths.size() - first, static_cast<size_t>(window));
    Window(lengths.subspan(first, count), static_cast<uint32_t>(first),
           static_cast<uint32_t>(capacity))
        .append_to(out);
  }
  return out;
}

}  // namespace fsdp::data
