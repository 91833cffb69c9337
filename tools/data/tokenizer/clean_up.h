// clean_up_tokenization_spaces of transformers: spaces that a decoded text is written without.
// Who reads the key: class_rules.h.
#pragma once

#include <string>
#include <string_view>

namespace fsdp::data {

// " ." to ".", " n't" to "n't", ...
std::string clean_up_spaces(std::string text);
// Whether more text behind it may change the end of a text that was cleaned up.
bool may_be_cleaned_up(std::string_view text);

}  // namespace fsdp::data
