// SHA-256 (FIPS 180-4) of a text, in hexadecimal digits.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>

#include <fmt/format.h>

namespace fsdp::test {

inline std::string sha256(std::string text) {
  // The fractional parts of the roots of the first primes.
  std::array<uint32_t, 64> k{};
  std::array<uint32_t, 8> hash{};
  int found = 0;
  for (uint32_t p = 2; found < 64; ++p) {
    bool prime = true;
    for (uint32_t d = 2; d * d <= p; ++d) prime = prime && p % d != 0;
    if (!prime) continue;
    const auto part = [](long double root) {
      return static_cast<uint32_t>((root - std::floor(root)) * 4294967296.0L);
    };
    if (found < 8) hash[static_cast<size_t>(found)] = part(std::sqrt(static_cast<long double>(p)));
    k[static_cast<size_t>(found++)] = part(std::cbrt(static_cast<long double>(p)));
  }
  const uint64_t bits = text.size() * 8;
  text += '\x80';
  while (text.size() % 64 != 56) text += '\0';
  for (int shift = 56; shift >= 0; shift -= 8) text += static_cast<char>(bits >> shift);
  for (size_t begin = 0; begin < text.size(); begin += 64) {
    std::array<uint32_t, 64> w{};
    for (size_t i = 0; i < 64; ++i)
      w[i / 4] = w[i / 4] << 8 | static_cast<uint8_t>(text[begin + i]);
    for (size_t i = 16; i < 64; ++i) {
      const uint32_t a = w[i - 15], b = w[i - 2];
      w[i] = w[i - 16] + w[i - 7] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3) +
             (std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10);
    }
    auto s = hash;
    for (size_t i = 0; i < 64; ++i) {
      const uint32_t e = s[4], a = s[0];
      const uint32_t one = s[7] + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                           ((e & s[5]) ^ (~e & s[6])) + k[i] + w[i];
      const uint32_t two = (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) +
                           ((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]));
      s = {one + two, s[0], s[1], s[2], s[3] + one, s[4], s[5], s[6]};
    }
    for (size_t i = 0; i < 8; ++i) hash[i] += s[i];
  }
  std::string out;
  for (const uint32_t word : hash) out += fmt::format("{:08x}", word);
  return out;
}

}  // namespace fsdp::test
