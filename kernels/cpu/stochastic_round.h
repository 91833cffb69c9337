// Rounding by chance of consecutive elements of one parameter: what the kernel of a whole shard
// (stochastic_round.cpp) and the optimizer's (shard_update.cpp) share.
#pragma once

#include <algorithm>

#include "core/dtype.h"
#include "core/rng.h"
#include "kernels/cpu/wide_loop.h"

namespace fsdp::cpu {

// out[i] = x[i] rounded, for i < n; element `first` of its parameter is x[0].
inline void round_run(RoundingStream stream, uint64_t name_hash, uint64_t first, const float* x,
                      BFloat16* out, int64_t n) {
  constexpr int64_t kBlock = 8;     // elements that share the words of a Philox block
  constexpr int64_t kBlocks = 128;  // whose draws lie in memory together
  uint32_t draws[kBlocks * kBlock];
  for (int64_t done = 0; done < n;) {
    const uint64_t element = first + static_cast<uint64_t>(done);
    const auto skipped = static_cast<int64_t>(element % kBlock);
    const uint64_t block = element / kBlock;
    const int64_t count = std::min(kBlocks * kBlock - skipped, n - done);
#pragma GCC ivdep
    for (int64_t b = 0; b < (skipped + count + kBlock - 1) / kBlock; ++b) {
      const Philox4x32 words = stream.words(name_hash, block + static_cast<uint64_t>(b));
      for (uint32_t i = 0; i < kBlock; ++i) draws[b * kBlock + i] = RoundingStream::draw(words, i);
    }
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i) {
      out[done + i].bits =
          rounded_by_chance(std::bit_cast<uint32_t>(x[done + i]), draws[skipped + i]);
    }
    done += count;
  }
}

inline void round_by_chance(RoundingStream stream, uint64_t name_hash, int64_t first,
                            const float* x, BFloat16* out, int64_t n) {
  const auto element = static_cast<uint64_t>(first);
  wide_loop([&](auto) { round_run(stream, name_hash, element, x, out, n); });
}

}  // namespace fsdp::cpu
