// The checksum is XXH3 of 64 bits, also on machines with other vector instructions, and one bit
// changes it.
#include "core/io/checksum.h"

#include <set>
#include <string>

#include <doctest/doctest.h>

namespace fsdp {
namespace {

// As the xxhash module of Python computes them.
TEST_CASE("known values") {
  CHECK(checksum("") == 0x2d06800538d394c2);
  CHECK(checksum("abc") == 0x78af5f94892f3950);
  std::string text;
  for (int i = 0; i < 10'000; ++i) text += static_cast<char>(i * 7 % 251);
  CHECK(checksum(text) == 0x436bab56c0b548ea);
}

TEST_CASE("every bit counts") {
  std::string bytes(300, 'x');
  std::set<uint64_t> seen{checksum(bytes)};
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string other = bytes;
    other[bit / 8] = static_cast<char>(other[bit / 8] ^ (1 << (bit % 8)));
    CHECK(seen.insert(checksum(other)).second);
  }
}

// MurmurHash3's fmix64: values of its reference implementation.
TEST_CASE("mixed numbers: every bit depends on every bit") {
  CHECK(mixed(0) == 0);
  CHECK(mixed(1) == 0xb456bcfc34c2cb2cULL);
  for (int bit = 0; bit < 64; ++bit) {
    const int changed = __builtin_popcountll(mixed(12345) ^ mixed(12345 ^ (uint64_t{1} << bit)));
    CHECK(changed > 12);
    CHECK(changed < 52);
  }
}

}  // namespace
}  // namespace fsdp
