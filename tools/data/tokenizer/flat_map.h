// Open addressing from 64-bit keys to small values, for what every character of a text asks.
// Filled once, never shrunk. Not here: maps that are asked rarely (std::unordered_map).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace fsdp::data {

template <typename Value>
class FlatMap {
 public:
  explicit FlatMap(size_t entries = 0)
      : slots_(std::bit_ceil(2 * entries + 2)), shift_(std::countl_zero(slots_.size()) + 1) {}

  // The number of keys never exceeds `entries`.
  void set(uint64_t key, const Value& value) {
    Slot& slot = slots_[position(key)];
    slot = {key, value, true};
  }
  const Value* find(uint64_t key) const {
    const Slot& slot = slots_[position(key)];
    return slot.used ? &slot.value : nullptr;
  }

 private:
  struct Slot {
    uint64_t key = 0;
    Value value{};
    bool used = false;
  };

  size_t position(uint64_t key) const {
    size_t i = (key * 0x9e3779b97f4a7c15ull) >> shift_;
    while (slots_[i].used && slots_[i].key != key) i = (i + 1) & (slots_.size() - 1);
    return i;
  }

  std::vector<Slot> slots_;  // a power of two, at most half full
  int shift_;
};

}  // namespace fsdp::data
