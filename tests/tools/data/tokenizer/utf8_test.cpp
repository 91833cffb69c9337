// What is UTF-8 and what is not, against a decoder written from the definition.
#include "tools/data/tokenizer/utf8.h"

#include <cstdint>
#include <string>

#include <doctest/doctest.h>

namespace fsdp::data {
namespace {

// By decoding: code point from the bits, then range, surrogates and shortest form.
bool valid_by_definition(const std::string& s) {
  for (size_t i = 0; i < s.size();) {
    const uint8_t first = static_cast<uint8_t>(s[i]);
    const int length = first < 0x80       ? 1
                       : first >> 5 == 6  ? 2
                       : first >> 4 == 14 ? 3
                       : first >> 3 == 30 ? 4
                                          : 0;
    if (length == 0 || i + static_cast<size_t>(length) > s.size()) return false;
    uint32_t code = length == 1 ? first : first & (0x7f >> length);
    for (int k = 1; k < length; ++k) {
      const uint8_t next = static_cast<uint8_t>(s[i + static_cast<size_t>(k)]);
      if (next >> 6 != 2) return false;
      code = code << 6 | (next & 0x3f);
    }
    constexpr uint32_t kSmallest[5] = {0, 0, 0x80, 0x800, 0x10000};
    if (code < kSmallest[length] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) {
      return false;
    }
    i += static_cast<size_t>(length);
  }
  return true;
}

TEST_CASE("every string of up to two bytes, and every lead with chosen continuations") {
  for (int a = 0; a < 256; ++a) {
    for (int b = 0; b < 256; ++b) {
      const std::string two{static_cast<char>(a), static_cast<char>(b)};
      CHECK((first_invalid_utf8(two) == 2) == valid_by_definition(two));
      if (a < 0xc0) continue;
      for (const char* tail : {"\x80", "\xbf", "\xc0", "\x80\x80", "\xbf\xbf", "\xbf\x7f"}) {
        const std::string more = two + tail;
        CHECK((first_invalid_utf8(more) == more.size()) == valid_by_definition(more));
      }
    }
  }
}

TEST_CASE("the place of the mistake, wherever the eight-byte steps fall") {
  for (size_t place = 0; place < 40; ++place) {
    std::string text(40, 'a');
    CHECK(first_invalid_utf8(text) == 40);
    text[place] = '\xff';
    CHECK(first_invalid_utf8(text) == place);
    text.replace(place, 1, "\xe2\x82\xac");  // a euro sign
    CHECK(first_invalid_utf8(text) == text.size());
    CHECK(first_invalid_utf8(text.substr(0, place + 2)) == place);
  }
  CHECK(first_invalid_utf8("") == 0);
}

// Tables 3-8 to 3-11 of the Unicode standard.
TEST_CASE("replacement of maximal subparts") {
  const auto replaced = [](std::string_view bytes) {
    const std::string valid = to_valid_utf8(bytes);
    std::string out;
    for (size_t i = 0; i < valid.size(); ++i) {
      const bool replacement = valid.compare(i, 3, "\ufffd") == 0;
      out += replacement ? '?' : valid[i];
      i += replacement ? 2 : 0;
    }
    return out;
  };
  CHECK(replaced("\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41") == "????????A");
  CHECK(replaced("\xed\xa0\x80\xed\xbf\xbf\xed\xaf\x41") == "????????A");
  CHECK(replaced("\xf4\x91\x92\x93\xff\x41\x80\xbf\x42") == "?????A??B");
  CHECK(replaced("\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41") == "????A");
  CHECK(to_valid_utf8("na\u00efve \U0001f600") == "na\u00efve \U0001f600");
}

TEST_CASE("a tail that may become a character") {
  const std::string_view emoji = "\U0001f600";
  for (size_t bytes = 0; bytes < 4; ++bytes) {
    CHECK(incomplete_utf8_tail(std::string("a").append(emoji.substr(0, bytes))) == bytes);
  }
  for (const char* whole : {"", "a", "\U0001f600", "\u00e9", "a\x80", "\xe0\x80", "\xff"}) {
    CHECK(incomplete_utf8_tail(whole) == 0);
  }
}

TEST_CASE("a byte order mark is left out, once, at the beginning") {
  CHECK(without_byte_order_mark("\xef\xbb\xbf\xef\xbb\xbf[1]") == "\xef\xbb\xbf[1]");
  CHECK(without_byte_order_mark("a\xef\xbb\xbf") == "a\xef\xbb\xbf");
  CHECK(without_byte_order_mark("\xef\xbb") == "\xef\xbb");
}

}  // namespace
}  // namespace fsdp::data
