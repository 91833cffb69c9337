// Shuffles, votes and reductions of a warp. Lanes that exchange meet; a lane outside of the mask
// that calls, or one of the mask that never comes, is an error. Included by intrinsics.h only.
#pragma once

#include <cstring>

#include "tests/cuda_emulator/builtins.h"

#define __syncwarp(...)                                             \
  ::fsdp::emulator::warp_barrier(FSDP_EMULATOR_PLACE("__syncwarp"), \
                                 ::fsdp::emulator::mask_of(__VA_ARGS__))

namespace fsdp::emulator {

inline uint32_t mask_of(uint32_t mask = 0xffffffffu) { return mask; }

template <typename T>
T value_of(const std::byte* values, int lane) {
  T value;
  std::memcpy(&value, values + static_cast<size_t>(lane) * kExchangeBytes, sizeof value);
  return value;
}

// The value of lane source(lane within its segment), own where that lies outside of the segment.
template <typename T, typename Source>
T shuffle(unsigned mask, T value, int width, const char* what, Source source) {
  const std::byte* values = exchange(mask, &value, sizeof value, what);
  const int segment = lane() / width * width, from = source(lane() - segment);
  return value_of<T>(values, from >= 0 && from < width ? segment + from : lane());
}

// f over the lanes of the mask, first to last.
template <typename T, typename F>
T reduce(unsigned mask, T value, const char* what, F f) {
  const std::byte* values = exchange(mask, &value, sizeof value, what);
  bool first = true;
  T total{};
  for (int i = 0; i < 32; ++i) {
    if (!(mask >> i & 1)) continue;
    const T next = value_of<T>(values, i);
    total = first ? next : f(total, next);
    first = false;
  }
  return total;
}

}  // namespace fsdp::emulator

template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  return fsdp::emulator::shuffle(mask, value, width, "__shfl_sync",
                                 [=](int) { return source % width; });
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32) {
  return fsdp::emulator::shuffle(mask, value, width, "__shfl_xor_sync",
                                 [=](int l) { return l ^ bits; });
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  return fsdp::emulator::shuffle(mask, value, width, "__shfl_down_sync",
                                 [=](int l) { return l + static_cast<int>(delta); });
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  return fsdp::emulator::shuffle(mask, value, width, "__shfl_up_sync",
                                 [=](int l) { return l - static_cast<int>(delta); });
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  const unsigned own = predicate ? 1u << fsdp::emulator::lane() : 0u;
  return fsdp::emulator::reduce(mask, own, "__ballot_sync",
                                [](unsigned a, unsigned b) { return a | b; });
}
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __all_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, predicate) == mask;
}
template <typename T>
T __reduce_add_sync(unsigned mask, T value) {
  return fsdp::emulator::reduce(mask, value, "__reduce_add_sync",
                                [](T a, T b) { return T(a + b); });
}
template <typename T>
T __reduce_max_sync(unsigned mask, T value) {
  return fsdp::emulator::reduce(mask, value, "__reduce_max_sync",
                                [](T a, T b) { return std::max(a, b); });
}
template <typename T>
T __reduce_min_sync(unsigned mask, T value) {
  return fsdp::emulator::reduce(mask, value, "__reduce_min_sync",
                                [](T a, T b) { return std::min(a, b); });
}
