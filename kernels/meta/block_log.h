// The blocks that a run without bytes takes and gives back, in order: what lies there at a moment
// that is known only later, when the run has ended.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/memory_ledger.h"

namespace fsdp::meta {

struct LoggedBlock {
  size_t bytes = 0;  // rounded
  MemoryCategory category = MemoryCategory::kWorkspace;
  std::string unit;    // that the host was issuing for
  std::string kernel;  // the next one: for which it was made, more often than not
};

class BlockLog {
 public:
  void taken(uintptr_t address, size_t bytes, MemoryCategory category, const std::string& unit);
  void given_back(uintptr_t address) { entries_.push_back({address, kReturn, {}}); }
  void kernel(std::string_view name);  // that was issued now
  size_t size() const { return entries_.size(); }
  // After the first `size` entries, the largest first.
  std::vector<LoggedBlock> there_after(size_t size) const;

 private:
  static constexpr size_t kReturn = 0;
  struct Entry {
    uintptr_t address;
    size_t bytes;  // kReturn: given back
    LoggedBlock block;
  };
  std::vector<Entry> entries_;
  size_t named_ = 0;  // of them, those with a kernel
};

}  // namespace fsdp::meta
