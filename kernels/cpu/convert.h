// Conversion of runs of floating elements, as fast as the memory. f64 to a 16-bit type goes through
// f32, as everywhere.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/dtype.h"

// GCC 12 does not vectorise loops over _Float16, hence by hand, eight at a time. They return how
// many elements they have done; the caller does the rest of a run (all of it without F16C) one by
// one.
#ifdef __F16C__
#include <immintrin.h>
namespace fsdp::cpu {
inline int64_t convert_eights(const Float16* from, float* to, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(half));
  }
  return i;
}
inline int64_t convert_eights(const float* from, Float16* to, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), half);
  }
  return i;
}
}  // namespace fsdp::cpu
#else
namespace fsdp::cpu {
inline int64_t convert_eights(const Float16*, float*, int64_t) { return 0; }
inline int64_t convert_eights(const float*, Float16*, int64_t) { return 0; }
}  // namespace fsdp::cpu
#endif

namespace fsdp::cpu {

// to[i] = from[i]; the two do not overlap.
template <typename From, typename To>
void convert(const From* __restrict from, To* __restrict to, int64_t n) {
  constexpr bool from_half = std::is_same_v<From, Float16>, to_half = std::is_same_v<To, Float16>;
  if constexpr (std::is_same_v<From, To>) {
    if (n > 0) std::memcpy(to, from, static_cast<size_t>(n) * sizeof(To));
  } else if constexpr ((from_half && !std::is_same_v<To, float>) ||
                       (to_half && !std::is_same_v<From, float>)) {
    constexpr int64_t kRun = 256;
    float buffer[kRun];
    for (int64_t i = 0; i < n; i += kRun) {
      const int64_t run = std::min(kRun, n - i);
      convert(from + i, buffer, run);
      convert(buffer, to + i, run);
    }
  } else {
    int64_t i = 0;
    if constexpr (from_half || to_half) i = convert_eights(from, to, n);
    for (; i < n; ++i) {
      to[i] = static_cast<To>(static_cast<float>(from[i]));  // the pair has an f32 or narrower
    }
  }
}

}  // namespace fsdp::cpu
