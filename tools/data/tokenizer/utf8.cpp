// UTF-8 by table 3-7 of the Unicode standard. Contract: tools/data/tokenizer/utf8.h.
#include "tools/data/tokenizer/utf8.h"

#include <cstdint>
#include <cstring>

namespace fsdp::data {
namespace {

struct Sequence {
  size_t length =
      1;  // bytes that belong together; of a broken character the bytes that could begin one
  size_t missing = 0;  // bytes to a whole character if the text ends here
  bool valid = false;
};

// What stands at the front of s, by table 3-7.
Sequence sequence_at(std::string_view s) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(s[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return {1, 0, true};
  if (first < 0xc2 || first > 0xf4) return {};
  const size_t length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  const int low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const int high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  for (size_t i = 1; i < length; ++i) {
    if (i == s.size()) return {i, length - i, false};
    if (byte(i) < (i == 1 ? low : 0x80) || byte(i) > (i == 1 ? high : 0xbf)) return {i, 0, false};
  }
  return {length, 0, true};
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
    const Sequence sequence = sequence_at(text.substr(i));
    if (!sequence.valid) return i;
    i += sequence.length;
  }
  return text.size();
}

std::string to_valid_utf8(std::string_view bytes) {
  std::string out;
  while (!bytes.empty()) {
    const size_t valid = first_invalid_utf8(bytes);
    out += bytes.substr(0, valid);
    bytes.remove_prefix(valid);
    if (bytes.empty()) break;
    out += "\ufffd";
    bytes.remove_prefix(sequence_at(bytes).length);
  }
  return out;
}

std::string_view without_byte_order_mark(std::string_view text) {
  constexpr std::string_view kMark = "\xef\xbb\xbf";
  if (text.starts_with(kMark)) text.remove_prefix(kMark.size());
  return text;
}

size_t incomplete_utf8_tail(std::string_view bytes) {
  for (size_t tail = 1; tail <= 3 && tail <= bytes.size(); ++tail) {
    const Sequence sequence = sequence_at(bytes.substr(bytes.size() - tail));
    if (sequence.missing > 0 && sequence.length == tail) return tail;
  }
  return 0;
}

}  // namespace fsdp::data
