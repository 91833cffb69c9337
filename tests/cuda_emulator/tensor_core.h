// ldmatrix and mma.sync on the fragments of a warp, as the PTX ISA lays them out (9.7.14, "Warp
// level matrix multiply-accumulate"): every lane sees the registers of all. Products are exact,
// sums in f32 in order of k. Included by intrinsics.h only.
#pragma once

#include <bit>

#include "tests/cuda_emulator/warp.h"

namespace fsdp::emulator {

// Element `half` (0 or 1) of a register that holds two 16-bit values.
inline uint16_t half_of(uint32_t pair, int half) {
  return static_cast<uint16_t>(half ? pair >> 16 : pair);
}

template <typename T>
float as_float(uint16_t bits) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __bfloat162float(std::bit_cast<__nv_bfloat16>(bits));
  } else {
    return __half2float(std::bit_cast<__half>(bits));
  }
}

// [Note: who holds which element] Lane l of a fragment has row (or column) g = l / 4 and the pair
// of columns (or rows) 2 * (l % 4) and the next.
inline void load_matrices(uint32_t (&r)[4], const void* row, bool transposed) {
  check_aligned(row, 16, "ldmatrix");
  const std::byte* addresses = exchange(0xffffffffu, &row, sizeof row, "ldmatrix");
  const int g = lane() / 4, t = lane() % 4;
  const auto element = [&](int matrix, int i, int j) {
    const auto* from =
        static_cast<const uint16_t*>(value_of<const void*>(addresses, 8 * matrix + i));
    return uint32_t{from[j]};
  };
  for (int matrix = 0; matrix < 4; ++matrix) {
    r[matrix] = transposed ? element(matrix, 2 * t, g) | element(matrix, 2 * t + 1, g) << 16
                           : element(matrix, g, 2 * t) | element(matrix, g, 2 * t + 1) << 16;
  }
}

template <typename T>
void multiply_16_8_16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  struct Given {
    uint32_t a[4], b[2];
  } own;
  std::copy_n(a, 4, own.a);
  std::copy_n(b, 2, own.b);
  const std::byte* given = exchange(0xffffffffu, &own, sizeof own, "mma.sync");
  const auto a_at = [&](int i, int k) {  // row i, column k
    const Given from = value_of<Given>(given, i % 8 * 4 + k % 8 / 2);
    return as_float<T>(half_of(from.a[i / 8 + k / 8 * 2], k % 2));
  };
  const auto b_at = [&](int k, int j) {
    const Given from = value_of<Given>(given, j * 4 + k % 8 / 2);
    return as_float<T>(half_of(from.b[k / 8], k % 2));
  };
  const int g = lane() / 4, t = lane() % 4;
  for (int r = 0; r < 4; ++r) {
    const int i = g + r / 2 * 8, j = 2 * t + r % 2;
    for (int k = 0; k < 16; ++k) d[r] += a_at(i, k) * b_at(k, j);
  }
}

}  // namespace fsdp::emulator
