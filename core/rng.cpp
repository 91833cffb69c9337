// Keys and distributions over the Philox generator.
#include "core/rng.h"

#include <numbers>

namespace fsdp {

uint64_t hash_name(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : name) {
    hash ^= static_cast<uint8_t>(c);
    hash *= 0x100000001b3ull;
  }
  return hash;
}

std::array<uint32_t, 2> dropout_key(const DropoutKey& key) {
  // Whitened by Philox itself: neighbouring seeds, layers or sites give unrelated keys.
  const Philox4x32 mixed =
      philox4x32({key.micro_step, key.layer, key.site, 0x64726f70u},
                 {static_cast<uint32_t>(key.seed), static_cast<uint32_t>(key.seed >> 32)});
  return {mixed[0], mixed[1]};
}

RoundingStream::RoundingStream(uint64_t seed, uint32_t update) {
  // Whitened as above, and apart from dropout by the tag.
  const Philox4x32 mixed =
      philox4x32({update, 0, 0, 0x726f756eu},
                 {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  key = {mixed[0], mixed[1]};
}

namespace {

// The 128 random bits of elements 2 * pair and 2 * pair + 1.
std::array<uint64_t, 2> words_of(uint64_t seed, uint64_t name_hash, uint64_t pair) {
  const Philox4x32 words =
      philox4x32({static_cast<uint32_t>(pair), static_cast<uint32_t>(pair >> 32),
                  static_cast<uint32_t>(name_hash), static_cast<uint32_t>(name_hash >> 32)},
                 {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return {(static_cast<uint64_t>(words[0]) << 32) | words[1],
          (static_cast<uint64_t>(words[2]) << 32) | words[3]};
}

}  // namespace

double uniform_at(uint64_t seed, uint64_t name_hash, uint64_t index) {
  return static_cast<double>(words_of(seed, name_hash, index / 2)[index % 2] >> 11) * 0x1p-53;
}

std::array<double, 2> normal_pair(uint64_t seed, uint64_t name_hash, uint64_t pair) {
  const auto [high, low] = words_of(seed, name_hash, pair);
  const double u = (static_cast<double>(high >> 11) + 0.5) * 0x1p-53;  // in (0, 1)
  const double angle = 2 * std::numbers::pi * (static_cast<double>(low >> 11) * 0x1p-53);
  const double radius = std::sqrt(-2 * std::log(u));
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

double normal_at(uint64_t seed, uint64_t name_hash, uint64_t index) {
  return normal_pair(seed, name_hash, index / 2)[index % 2];
}

}  // namespace fsdp
