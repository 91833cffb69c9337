// The mask of dropout as every backend draws it, for the element-wise kernel and for attention.
// Also compiled into CUDA kernels. Not here: the words themselves (core/rng.h).
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "core/layer_values.h"

namespace fsdp {

// A mask's stream, without the sample and element that pick a word from it. Scale: what the kernel
// multiplies in.
template <typename Scale>
struct DropoutMask {
  std::array<uint32_t, 2> key{};
  uint32_t step = 0;
  uint32_t threshold = 0;  // kept when the upper 24 bits of the word reach it
  Scale scale = 1;         // of what is kept

  explicit DropoutMask(const Dropout& args)
      : key(dropout_key(args.key)),
        step(args.key.step),
        // uniform_float(word) >= probability, exactly
        threshold(static_cast<uint32_t>(std::ceil(args.probability * 0x1p24))),
        scale(args.probability < 1 ? static_cast<Scale>(1 / (1 - args.probability)) : 0) {}

  // Words of elements 4 * block to 4 * block + 3 of the sample.
  constexpr Philox4x32 words(uint64_t sample, uint64_t block) const {
    return philox4x32(dropout_counter(block, sample, step), key);
  }
  constexpr bool keeps(uint32_t word) const { return word >> 8 >= threshold; }
};

}  // namespace fsdp
