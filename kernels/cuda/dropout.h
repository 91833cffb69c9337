// The mask of dropout as kernels draw it, for the element-wise kernel and for attention.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "core/kernel_args.h"
#include "core/rng.h"

namespace fsdp::cuda {

struct DropoutMask {
  std::array<uint32_t, 2> key{};
  uint32_t step = 0;
  uint32_t threshold = 0;  // kept when the upper 24 bits of the word reach it
  float scale = 1;         // of what is kept

  explicit DropoutMask(const DropoutArgs& args)
      : key(dropout_key(args.key)),
        step(args.key.step),
        // uniform_float(word) >= probability, exactly
        threshold(static_cast<uint32_t>(std::ceil(args.probability * 0x1p24))),
        scale(args.probability < 1 ? static_cast<float>(1 / (1 - args.probability)) : 0) {}

  // Words of elements 4 * block to 4 * block + 3 of the sample.
  constexpr Philox4x32 words(uint64_t sample, uint64_t block) const {
    return philox4x32(dropout_counter(block, sample, step), key);
  }
  constexpr bool keeps(uint32_t word) const { return word >> 8 >= threshold; }
};

}  // namespace fsdp::cuda
