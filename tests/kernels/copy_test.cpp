// Backend::copy: every byte arrives and no other changes, whatever the size and alignment, in cache
// and past it.
#include "kernels/cpu/copy.h"

#include <vector>

#include <doctest/doctest.h>

#include "kernels/cpu/cpu_backend.h"

namespace fsdp::cpu {
namespace {

std::byte pattern(size_t i) { return static_cast<std::byte>((i * 2654435761u) >> 13); }

void check_copy(CpuBackend& backend, size_t bytes, size_t to_offset, size_t from_offset) {
  CAPTURE(bytes);
  CAPTURE(to_offset);
  CAPTURE(from_offset);
  constexpr std::byte kUntouched{0x5a};
  std::vector<std::byte> from(bytes + from_offset), to(bytes + to_offset + 64, kUntouched);
  for (size_t i = 0; i < from.size(); ++i) from[i] = pattern(i);
  backend.copy(backend.compute_stream(), to.data() + to_offset, from.data() + from_offset, bytes);
  backend.synchronize(backend.compute_stream());
  size_t wrong = 0;
  for (size_t i = 0; i < to.size(); ++i) {
    const bool copied = i >= to_offset && i < to_offset + bytes;
    wrong += to[i] != (copied ? pattern(i - to_offset + from_offset) : kUntouched);
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("copy: sizes and alignments") {
  for (const int threads : {1, 2}) {
    CpuBackend backend({.threads = threads});
    for (const size_t bytes : {size_t{1}, size_t{31}, size_t{4097}, (size_t{1} << 20) + 3}) {
      check_copy(backend, bytes, 0, 0);
      check_copy(backend, bytes, 5, 11);
    }
    check_copy(backend, kStreamingBytes, 0, 0);
    check_copy(backend, kStreamingBytes + 77, 5, 11);
  }
}

TEST_CASE("copy_past_caches: shorter than a vector, shorter than its alignment") {
  for (size_t bytes = 0; bytes < 100; ++bytes) {
    for (size_t offset = 0; offset < 33; ++offset) {
      std::vector<std::byte> from(bytes), to(bytes + offset + 1);
      for (size_t i = 0; i < bytes; ++i) from[i] = pattern(i + 1);
      copy_past_caches(to.data() + offset, from.data(), bytes);
      size_t wrong = to[bytes + offset] != std::byte{0};
      for (size_t i = 0; i < bytes; ++i) wrong += to[i + offset] != from[i];
      CHECK(wrong == 0);
    }
  }
}

}  // namespace fsdp::cpu
