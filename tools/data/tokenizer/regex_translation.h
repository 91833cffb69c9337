// Rewrites a pattern of Oniguruma (the engine of Hugging Face's tokenizers) for PCRE2 where the two
// read it differently or PCRE2's tables are older:
//   \s, \S                Unicode white space (PCRE2 adds U+180E)
//   \p{L}, \p{N}          and the letters and numbers that came with Unicode 15 and 16
//   [a[bc]d]              a class in a class is a union
//   ^, $                  at the beginning and end of every line
//   \v \uHHHH {,n}        one character; a character; {0,n}
// Refused, because it means something else there and nobody needed it yet: \w \b \h \X \R \K, back
// references, POSIX classes, && in classes, options for the rest of a group, possessive {n,m}+.
// Refused so that no file can exhaust the stack: more than 65536 bytes, classes more than 64 deep.
#pragma once

#include <string>
#include <string_view>

namespace fsdp::data {

// Error that quotes the pattern and names what is not supported.
std::string translate_regex(std::string_view oniguruma_pattern);

}  // namespace fsdp::data
