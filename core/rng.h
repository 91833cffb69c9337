// Counter-based random numbers: Philox4x32-10 (Salmon et al., SC'11, "Parallel random numbers: as
// easy as 1, 2, 3"). No state: a value is a function of (seed, what it is for, which element), so
// any sharding, recompute or world size draws the same numbers. What is constexpr here is also
// compiled into CUDA kernels.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>

namespace fsdp {

using Philox4x32 = std::array<uint32_t, 4>;

// One block of four words for a 128-bit counter under a 64-bit key.
constexpr Philox4x32 philox4x32(Philox4x32 counter, std::array<uint32_t, 2> key) {
  constexpr uint32_t kMultiplier0 = 0xD2511F53u, kMultiplier1 = 0xCD9E8D57u;
  constexpr uint32_t kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = static_cast<uint64_t>(kMultiplier0) * counter[0];
    const uint64_t p1 = static_cast<uint64_t>(kMultiplier1) * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
    key = {key[0] + kWeyl0, key[1] + kWeyl1};
  }
  return counter;
}

// Uniform in [0, 1) with 24 bits: what dropout_mask.h says in whole numbers, and its tests compare.
constexpr float uniform_float(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }

// 64-bit FNV-1a of a name: the stream identity of a parameter's initial values.
uint64_t hash_name(std::string_view name);

// What a dropout mask depends on besides (global sample, element within the sample).
// Element e of sample s draws word e%4 of philox(counter = {e/4 low, e/4 high ^ (s high), s low,
// step}, key = seed mixed with micro_step, layer and site); see dropout_key in rng.cpp.
struct DropoutKey {
  uint64_t seed = 0;
  uint32_t step = 0;
  uint32_t micro_step = 0;
  uint32_t layer = 0;
  uint32_t site = 0;
};
std::array<uint32_t, 2> dropout_key(const DropoutKey& key);

// Counter of elements 4*block .. 4*block+3 of a global sample at a step (shared by all backends).
constexpr Philox4x32 dropout_counter(uint64_t block, uint64_t sample, uint32_t step) {
  return {static_cast<uint32_t>(block),
          static_cast<uint32_t>(block >> 32) ^ (static_cast<uint32_t>(sample >> 32) << 8),
          static_cast<uint32_t>(sample), step};
}

// The draws by which values that an update left in f32 are rounded to bf16. Element e of a
// parameter takes half of a word of philox(counter = {e/8 low, e/8 high, name hash low, high},
// key = seed mixed with the update).
struct RoundingStream {
  std::array<uint32_t, 2> key{};

  RoundingStream() = default;
  RoundingStream(uint64_t seed, uint32_t update);
  // The words of elements 8 * block to 8 * block + 7; element 8 * block + i has draw(words, i).
  constexpr Philox4x32 words(uint64_t name_hash, uint64_t block) const {
    return philox4x32({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                       static_cast<uint32_t>(name_hash), static_cast<uint32_t>(name_hash >> 32)},
                      key);
  }
  static constexpr uint32_t draw(const Philox4x32& words, uint32_t i) {
    return words[i / 2] >> (i % 2 * 16) & 0xffffu;
  }
};

// The bits of an f32 as those of a bf16: towards zero when their lower half plus the draw (16 bits)
// has no carry, else away from it. So each is as likely as the other one is far. Infinities and NaN
// stay what they are.
constexpr uint16_t rounded_by_chance(uint32_t bits, uint32_t draw) {
  if ((bits & 0x7f800000u) != 0x7f800000u) return static_cast<uint16_t>((bits + draw) >> 16);
  const uint32_t quiet = (bits & 0x007fffffu) != 0 ? 0x40u : 0u;
  return static_cast<uint16_t>(bits >> 16 | quiet);
}

// Standard normal number `index` of the stream (seed, name_hash): Box-Muller over one Philox block
// per pair, in double.
std::array<double, 2> normal_pair(uint64_t seed, uint64_t name_hash, uint64_t pair);
double normal_at(uint64_t seed, uint64_t name_hash, uint64_t index);
// Uniform number `index` of that stream, in [0, 1) with 53 bits.
double uniform_at(uint64_t seed, uint64_t name_hash, uint64_t index);

}  // namespace fsdp
