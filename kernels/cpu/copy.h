// Copying bytes, with stores that go past the caches where a block is larger than those: then the
// destination is not read first, and a copy moves two bytes a byte instead of three.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#ifdef __AVX__
#include <immintrin.h>
#endif

namespace fsdp::cpu {

// Copies of at least this size are faster past the caches.
constexpr size_t kStreamingBytes = size_t{32} << 20;

inline void copy_past_caches(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes == 0) return;  // the pointers may be null
  size_t done = 0;
#ifdef __AVX__
  constexpr size_t kVector = sizeof(__m256i);
  const size_t unaligned = -reinterpret_cast<uintptr_t>(to) % kVector;
  if (bytes >= unaligned + kVector) {
    std::memcpy(to, from, unaligned);
    for (done = unaligned; done + kVector <= bytes; done += kVector) {
      _mm256_stream_si256(reinterpret_cast<__m256i*>(to + done),
                          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + done)));
    }
    _mm_sfence();  // before another thread hears that the copy is done
  }
#endif
  std::memcpy(to + done, from + done, bytes - done);
}

}  // namespace fsdp::cpu
