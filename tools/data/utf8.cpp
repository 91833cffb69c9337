// UTF-8 by table 3-7 of the Unicode standard. Contract: tools/data/utf8.h.
#include "tools/data/utf8.h"

#include <cstdint>
#include <cstring>

namespace fsdp::data {
namespace {

// Length of the well-formed sequence at the front of s (1 to 4), 0 if there is none.
size_t sequence_length(std::string_view s) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(s[i]); };
  const auto continuation = [&](size_t i, int low = 0x80, int high = 0xbf) {
    return i < s.size() && byte(i) >= low && byte(i) <= high;
  };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return continuation(1) ? 2 : 0;
  if (first >= 0xe0 && first <= 0xef) {
    const int low = first == 0xe0 ? 0xa0 : 0x80, high = first == 0xed ? 0x9f : 0xbf;
    return continuation(1, low, high) && continuation(2) ? 3 : 0;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    const int low = first == 0xf0 ? 0x90 : 0x80, high = first == 0xf4 ? 0x8f : 0xbf;
    return continuation(1, low, high) && continuation(2) && continuation(3) ? 4 : 0;
  }
  return 0;
}

}  // namespace

size_t first_invalid_utf8(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    uint64_t eight = 0;  // ASCII, eight bytes at a time
    while (i + 8 <= text.size() &&
           (std::memcpy(&eight, text.data() + i, 8), (eight & 0x8080808080808080ull) == 0)) {
      i += 8;
    }
    if (i == text.size()) break;
    const size_t length = sequence_length(text.substr(i));
    if (length == 0) return i;
    i += length;
  }
  return text.size();
}

}  // namespace fsdp::data
