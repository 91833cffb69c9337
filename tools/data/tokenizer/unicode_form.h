// Unicode's normal forms and lower case, as of the Unicode that the tokenizers library has,
// whatever utf8proc has. Not here: when they are used (normalizer.h).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "tools/data/tokenizer/span.h"

namespace fsdp::data {

enum class UnicodeForm : uint8_t { kNfc, kNfd, kNfkc, kNfkd };

// All append to `out`. Text is valid UTF-8.
void to_unicode_form(UnicodeForm form, std::string_view text, std::string& out);  // of Unicode 9
// Cuts a text into parts, from left to right, whose forms together are the form of the text.
using UseFormed = std::function<void(Span part, std::string_view formed)>;
void for_each_part(UnicodeForm form, std::string_view text, const UseFormed& use);
// Lower case as in Unicode 17, character by character: a final sigma is like any other.
void to_lower_case(std::string_view text, std::string& out);
// The same, but a sigma at the end of a word has its own form, as in Python's str.lower().
void to_lower_case_with_final_sigma(std::string_view text, std::string& out);

}  // namespace fsdp::data
