// UTF-8, checked. For text files and, where tokenizers need characters, for them.
#pragma once

#include <cstddef>
#include <string_view>

namespace fsdp::data {

// Byte index of the first sequence that is not UTF-8 (overlong forms, surrogates and code points
// above U+10FFFF are not); text.size() when all is well.
size_t first_invalid_utf8(std::string_view text);

}  // namespace fsdp::data
