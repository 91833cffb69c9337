// Contract: core/io/odd_bytes.h.
#include "core/io/odd_bytes.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <utility>

#include <fmt/format.h>

namespace fsdp {
namespace {

constexpr std::string_view kMark = "\xEF\xB7\x90";  // U+FDD0
constexpr std::string_view kSmall = "\\ufdd0\\u01", kLarge = "\\uFDD0\\u01";

uint8_t byte_of(char c) { return static_cast<uint8_t>(c); }

// Bytes of the character that the text begins with; 0: it begins with none.
size_t character(std::string_view text) {
  const uint8_t lead = byte_of(text[0]);
  if (lead < 0x80) return 1;
  const size_t bytes = lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
  if (bytes == 0 || text.size() < bytes) return 0;
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte_of(text[i]) & 0xC0) != 0x80) return 0;
  }
  // Longer than it need be, half of a pair of surrogates, beyond the last character.
  const uint8_t next = byte_of(text[1]);
  if ((lead == 0xE0 && next < 0xA0) || (lead == 0xED && next >= 0xA0)) return 0;
  if ((lead == 0xF0 && next < 0x90) || (lead == 0xF4 && next >= 0x90)) return 0;
  return bytes;
}

// Of "\uXXXX" at the beginning of the text; -1: it is no such escape.
int escaped(std::string_view text) {
  int code = -1;
  if (text.size() < 6 || text[0] != '\\' || text[1] != 'u') return -1;
  const auto [end, error] = std::from_chars(text.data() + 2, text.data() + 6, code, 16);
  return error == std::errc() && end == text.data() + 6 ? code : -1;
}

}  // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t bytes = character(text);
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

std::string with_stand_ins(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t bytes = character(text);
    if (bytes == 0) {  // 0x80 to 0xFF
      out += kMark;
      out += static_cast<char>(0xC4 | (byte_of(text[0]) >> 6));
      out += static_cast<char>(0x80 | (byte_of(text[0]) & 0x3F));
    } else {
      out += text.substr(0, bytes);
    }
    text.remove_prefix(bytes == 0 ? 1 : bytes);
  }
  return out;
}

namespace {

// Each stand-in becomes what `make` says of its byte.
template <typename Make>
std::string replaced(std::string_view text, const Make& make) {
  std::string out;
  for (;;) {
    const size_t found = text.find(kMark);
    if (found == text.npos || text.size() < found + kMark.size() + 2) return out.append(text);
    const uint8_t lead = byte_of(text[found + kMark.size()]);
    if (lead != 0xC6 && lead != 0xC7) {  // a mark of the text's own
      out += text.substr(0, found + kMark.size());
      text.remove_prefix(found + kMark.size());
      continue;
    }
    out += text.substr(0, found);
    out +=
        make(static_cast<uint8_t>((lead << 6) | (byte_of(text[found + kMark.size() + 1]) & 0x3F)));
    text.remove_prefix(found + kMark.size() + 2);
  }
}

}  // namespace

std::string without_stand_ins(std::string_view text) {
  return replaced(text, [](uint8_t byte) { return std::string(1, static_cast<char>(byte)); });
}

std::string stand_ins_as_escapes(std::string_view json) {
  return replaced(json, [](uint8_t byte) { return fmt::format("\\udc{:02x}", byte); });
}

std::string escapes_as_stand_ins(std::string_view json) {
  std::string out;
  while (!json.empty()) {
    const size_t escape = json.find('\\');
    out += json.substr(0, escape);
    if (escape == json.npos) break;
    json.remove_prefix(escape);
    const int code = escaped(json);
    // The first half of a pair takes the second one with it.
    const size_t taken = code < 0 ? 2 : code >= 0xD800 && code < 0xDC00 ? 12 : 6;
    if (code >= 0xDC80 && code <= 0xDCFF) {
      out.append(json[2] == 'D' ? kLarge : kSmall).append(json.substr(4, 2));
    } else {
      out += json.substr(0, taken);
    }
    json.remove_prefix(std::min(taken, json.size()));
  }
  return out;
}

std::string escapes_as_written(std::string text) {
  for (const auto& [ours, written] : {std::pair{kSmall, "\\udc"}, {kLarge, "\\uDC"}}) {
    for (size_t at = 0; (at = text.find(ours, at)) != text.npos;)
      text.replace(at, ours.size(), written);
  }
  return text;
}

}  // namespace fsdp
