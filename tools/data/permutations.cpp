// Contract: tools/data/permutations.h. torch: a Fisher-Yates shuffle from the front; each index is
// the rest of a draw of the Mersenne Twister, whose seed is the low half of the generator's. numpy:
// its generator has three parts. SeedSequence spreads the seed over 256 bits, PCG64 (XSL-RR of 128
// bits; O'Neill, "PCG: A Family of Simple Fast Space-Efficient Statistically Good Algorithms for
// Random Number Generation", 2014) draws from them, and a Fisher-Yates shuffle from the end takes
// each index from the low bits of half a draw, again until it is in range.
#include "tools/data/permutations.h"

#include <array>
#include <bit>
#include <numeric>
#include <random>
#include <utility>

#include "core/error.h"

namespace fsdp::data {

std::vector<uint32_t> torch_permutation(int64_t size, uint64_t seed) {
  constexpr int64_t kLimit = UINT32_MAX / 20;
  FSDP_CHECK(size >= 0 && size < kLimit,
             "data.shuffle_rule: torch: expected fewer than {} sequences, got {}", kLimit, size);
  std::vector<uint32_t> out(static_cast<size_t>(size));
  std::iota(out.begin(), out.end(), 0u);
  std::mt19937 random(static_cast<uint32_t>(seed));
  for (size_t i = 0; i + 1 < out.size(); ++i) {
    std::swap(out[i], out[i + random() % (out.size() - i)]);
  }
  return out;
}

namespace {

using Wide = unsigned __int128;

constexpr Wide wide(uint64_t high, uint64_t low) { return Wide{high} << 64 | low; }

// One pass of SeedSequence's hash: the constant changes with every word.
class Hash {
 public:
  constexpr Hash(uint32_t start, uint32_t multiplier) : constant_(start), multiplier_(multiplier) {}
  constexpr uint32_t operator()(uint32_t word) {
    word ^= constant_;
    constant_ *= multiplier_;
    word *= constant_;
    return word ^ word >> 16;
  }

 private:
  uint32_t constant_, multiplier_;
};

uint32_t mix(uint32_t a, uint32_t b) {
  const uint32_t mixed = 0xca01f9ddu * a - 0x4973f715u * b;
  return mixed ^ mixed >> 16;
}

// SeedSequence(seed).generate_state(4, uint64)
std::array<uint64_t, 4> spread(uint64_t seed) {
  std::array<uint32_t, 4> pool = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  Hash in(0x43b0d7e5u, 0x931e8875u);
  for (uint32_t& word : pool) word = in(word);
  for (size_t from = 0; from < pool.size(); ++from) {
    for (size_t to = 0; to < pool.size(); ++to) {
      if (from != to) pool[to] = mix(pool[to], in(pool[from]));
    }
  }
  Hash out(0x8b51f9ddu, 0x58f38dedu);
  std::array<uint64_t, 4> state{};
  for (size_t i = 0; i < 2 * state.size(); ++i) {
    state[i / 2] |= uint64_t{out(pool[i % pool.size()])} << (i % 2 * 32);
  }
  return state;
}

class Pcg64 {
 public:
  explicit Pcg64(uint64_t seed) {
    const auto [start_high, start_low, stream_high, stream_low] = spread(seed);
    increment_ = wide(stream_high, stream_low) << 1 | 1;
    step();
    state_ += wide(start_high, start_low);
    step();
  }

  // The low half of a draw, then its high half.
  uint32_t next() {
    if (has_half_) {
      has_half_ = false;
      return half_;
    }
    step();
    const auto high = static_cast<uint64_t>(state_ >> 64), low = static_cast<uint64_t>(state_);
    const uint64_t draw = std::rotr(high ^ low, static_cast<int>(high >> 58));
    half_ = static_cast<uint32_t>(draw >> 32);
    has_half_ = true;
    return static_cast<uint32_t>(draw);
  }
  // 0 .. largest
  uint32_t up_to(uint32_t largest) {
    const uint32_t mask = UINT32_MAX >> std::countl_zero(largest);
    for (;;) {
      const uint32_t drawn = next() & mask;
      if (drawn <= largest) return drawn;
    }
  }

 private:
  void step() { state_ = state_ * wide(2549297995355413924u, 4865540595714422341u) + increment_; }

  Wide state_ = 0, increment_ = 0;
  uint32_t half_ = 0;
  bool has_half_ = false;
};

}  // namespace

std::vector<int64_t> numpy_permutation(int64_t size, uint64_t seed) {
  FSDP_CHECK(size >= 0 && size <= int64_t{1} << 32,
             "[numpy_permutation] size: expected 0 to 2^32, got {}", size);
  std::vector<int64_t> out(static_cast<size_t>(size));
  std::iota(out.begin(), out.end(), 0);
  Pcg64 random(seed);
  for (size_t i = out.size(); i-- > 1;) {
    std::swap(out[i], out[random.up_to(static_cast<uint32_t>(i))]);
  }
  return out;
}

}  // namespace fsdp::data
