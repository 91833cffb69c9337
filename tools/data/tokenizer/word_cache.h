// The ids of short pieces that were encoded before: a text repeats its words. It grows with what it
// holds; bounded: when it is full it starts anew. Changes nothing but the speed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp::data {

class WordCache {
 public:
  static constexpr size_t kLongest = 32;  // bytes of a piece

  WordCache() : slots_(kLeastSlots) {}

  static uint64_t hash_of(std::string_view piece);  // at most kLongest bytes
  // `hash` is that of the piece. Nothing: not there.
  std::optional<std::span<const int32_t>> find(std::string_view piece, uint64_t hash) const {
    for (size_t i = hash & (slots_.size() - 1);; i = (i + 1) & (slots_.size() - 1)) {
      const Slot& slot = slots_[i];
      if (slot.bytes == 0) return {};
      if (slot.hash == hash && piece == std::string_view(&text_[slot.text], slot.bytes)) {
        return std::span(ids_).subspan(slot.ids, slot.count);
      }
    }
  }
  void insert(std::string_view piece, uint64_t hash, std::span<const int32_t> ids);

 private:
  static constexpr size_t kLeastSlots = 1 << 7, kMostSlots = 1 << 17;

  struct Slot {
    uint64_t hash = 0;
    uint32_t text = 0;   // index into text_
    uint32_t ids = 0;    // index into ids_
    uint16_t bytes = 0;  // 0: empty
    uint16_t count = 0;
  };

  void place(const Slot& slot);

  std::vector<Slot> slots_;  // a power of two, at most half full
  std::string text_;
  std::vector<int32_t> ids_;
  size_t entries_ = 0;
};

}  // namespace fsdp::data
