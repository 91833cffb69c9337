// Bytes of a text. Not here: their meaning (tokenizer.h, regex.h, trace.h).
#pragma once

#include <cstddef>
#include <string_view>

namespace fsdp::data {

struct Span {
  size_t begin = 0, end = 0;  // bytes

  std::string_view of(std::string_view text) const { return text.substr(begin, end - begin); }
  bool operator==(const Span&) const = default;
};

}  // namespace fsdp::data
