// Contract: tools/data/tokenizer/word_cache.h.
#include "tools/data/tokenizer/word_cache.h"

#include <algorithm>
#include <cstring>

namespace fsdp::data {
namespace {

template <typename Word>
uint64_t load(const char* from) {
  Word word;
  std::memcpy(&word, from, sizeof word);
  return word;
}

uint64_t mix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9e3779b97f4a7c15ull;
  return hash ^ (hash >> 32);
}

}  // namespace

// The last word may overlap the one before it: no loop over single bytes.
uint64_t WordCache::hash_of(std::string_view piece) {
  const char* const p = piece.data();
  const size_t n = piece.size();
  uint64_t hash = n * 0xff51afd7ed558ccdull;
  if (n >= 8) {
    for (size_t i = 0; i + 8 < n; i += 8) hash = mix(hash, load<uint64_t>(p + i));
    return mix(hash, load<uint64_t>(p + n - 8));
  }
  if (n >= 4) return mix(hash, load<uint32_t>(p) << 32 | load<uint32_t>(p + n - 4));
  uint64_t word = 0;
  for (size_t i = 0; i < n; ++i) word = word << 8 | static_cast<uint8_t>(p[i]);
  return mix(hash, word);
}

void WordCache::insert(std::string_view piece, uint64_t hash, std::span<const int32_t> ids) {
  if (2 * entries_ == slots_.size()) {
    std::vector<Slot> before = std::move(slots_);
    slots_.assign(std::min(2 * before.size(), kMostSlots), {});
    if (before.size() == kMostSlots) {
      text_.clear();
      ids_.clear();
      entries_ = 0;
    } else {
      for (const Slot& slot : before) {
        if (slot.bytes != 0) place(slot);
      }
    }
  }
  place({hash, static_cast<uint32_t>(text_.size()), static_cast<uint32_t>(ids_.size()),
         static_cast<uint16_t>(piece.size()), static_cast<uint16_t>(ids.size())});
  text_ += piece;
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  ++entries_;
}

void WordCache::place(const Slot& slot) {
  size_t i = slot.hash & (slots_.size() - 1);
  while (slots_[i].bytes != 0) i = (i + 1) & (slots_.size() - 1);
  slots_[i] = slot;
}

}  // namespace fsdp::data
