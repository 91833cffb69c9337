// The random words behind dropout masks, for the element-wise kernel and for attention.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "core/kernel_args.h"

namespace fsdp::cpu {

// A mask's stream, without the sample and element that pick a word from it.
struct DropoutMask {
  std::array<uint32_t, 2> key{};
  uint32_t step = 0;
  uint32_t threshold = 0;  // kept when the upper 24 bits of the word reach it
  double scale = 1;        // of what is kept

  explicit DropoutMask(const DropoutArgs& args)
      : key(dropout_key(args.key)),
        step(args.key.step),
        // uniform_float(word) >= probability, exactly
        threshold(static_cast<uint32_t>(std::ceil(args.probability * 0x1p24))),
        scale(args.probability < 1 ? 1 / (1 - args.probability) : 0) {}
};

// words[i] = the word of element 4 * first_block + i of the sample, for i < 4 * blocks.
inline void dropout_words(DropoutMask mask, uint64_t sample, uint64_t first_block,
                          int64_t blocks, uint32_t* words) {
#pragma GCC ivdep  // omp simd would put `block` into memory
  for (int64_t i = 0; i < blocks; ++i) {
    const Philox4x32 block = philox4x32(
        dropout_counter(first_block + static_cast<uint64_t>(i), sample, mask.step), mask.key);
    words[4 * i] = block[0];
    words[4 * i + 1] = block[1];
    words[4 * i + 2] = block[2];
    words[4 * i + 3] = block[3];
  }
}

inline bool dropout_keeps(uint32_t word, uint32_t threshold) { return word >> 8 >= threshold; }

}  // namespace fsdp::cpu
