// Contract: kernels/meta/block_log.h.
#include "kernels/meta/block_log.h"

#include <algorithm>

namespace fsdp::meta {

void BlockLog::taken(uintptr_t address, size_t bytes, MemoryCategory category,
                     const std::string& unit) {
  bytes = rounded_bytes(bytes);
  entries_.push_back({address, bytes, {bytes, category, unit, ""}});
}

void BlockLog::kernel(std::string_view name) {
  for (; named_ < entries_.size(); ++named_) entries_[named_].block.kernel = name;
}

std::vector<LoggedBlock> BlockLog::there_after(size_t size) const {
  std::map<uintptr_t, const LoggedBlock*> there;
  for (size_t i = 0; i < std::min(size, entries_.size()); ++i) {
    const Entry& entry = entries_[i];
    if (entry.bytes == kReturn) {
      there.erase(entry.address);
    } else {
      there[entry.address] = &entry.block;
    }
  }
  std::vector<LoggedBlock> out;
  for (const auto& [address, block] : there) out.push_back(*block);
  std::stable_sort(out.begin(), out.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  return out;
}

}  // namespace fsdp::meta
