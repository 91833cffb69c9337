// UTF-8, checked. For text files and, where tokenizers need characters, for them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace fsdp::data {

// Byte index of the first sequence that is not UTF-8 (overlong forms, surrogates and code points
// above U+10FFFF are not); text.size() when all is well.
size_t first_invalid_utf8(std::string_view text);
// Each maximal part of a sequence that is not UTF-8 replaced by U+FFFD.
std::string to_valid_utf8(std::string_view bytes);
// A file's text without the mark that some editors put before it.
std::string_view without_byte_order_mark(std::string_view text);
// Bytes at the end that may be the beginning of a character: 0 to 3.
size_t incomplete_utf8_tail(std::string_view bytes);

}  // namespace fsdp::data
