// The random words behind dropout masks, drawn many at a time, for the element-wise kernel and for
// attention.
#pragma once

#include "core/dropout_mask.h"

namespace fsdp::cpu {

using CpuDropoutMask = DropoutMask<double>;  // f64 is among what is computed

// words[i] = the word of element 4 * first_block + i of the sample, for i < 4 * blocks. The mask by
// value: a reference would be read again in every round.
inline void dropout_words(CpuDropoutMask mask, uint64_t sample, uint64_t first_block,
                          int64_t blocks, uint32_t* words) {
#pragma GCC ivdep  // omp simd would put `block` into memory
  for (int64_t i = 0; i < blocks; ++i) {
    const Philox4x32 block = mask.words(sample, first_block + static_cast<uint64_t>(i));
    words[4 * i] = block[0];
    words[4 * i + 1] = block[1];
    words[4 * i + 2] = block[2];
    words[4 * i + 3] = block[3];
  }
}

}  // namespace fsdp::cpu
