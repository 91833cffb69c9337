// Contract: tools/data/json_row.h.
#include "tools/data/json_row.h"

#include "core/error.h"

namespace fsdp::data {
namespace {

// The text with 0 in place of Python's words outside of strings; the same text without them.
std::string without_words(std::string_view text) {
  std::string out;
  bool inside_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const std::string_view rest = text.substr(i);
    size_t word = 0;
    if (!inside_string && rest.starts_with("NaN")) word = 3;
    if (!inside_string && rest.starts_with("Infinity")) word = 8;
    if (word > 0) {
      out += '0';
      i += word - 1;
      continue;
    }
    if (text[i] == '"') inside_string = !inside_string;
    out += text[i];
    if (inside_string && text[i] == '\\' && i + 1 < text.size()) out += text[++i];
  }
  return out;
}

}  // namespace

// Rows with such words are few: they are looked for in what is no JSON.
Json parse_json_row(std::string_view text, const std::string& where) {
  try {
    return parse_json_line(text, where);
  } catch (const Error&) {
    const std::string changed = without_words(text);
    if (changed == text) throw;
    return parse_json_line(changed, where);
  }
}

}  // namespace fsdp::data
