// Contract: tools/data/json_row.h.
#include "tools/data/json_row.h"

#include <limits>

#include "core/error.h"
#include "core/io/json_spelling.h"

namespace fsdp::data {
namespace {

// Numbers that stand for the words until the text is parsed: no row of data has them.
constexpr std::string_view kNaN = "7.1875e-300", kInfinity = "7.1876e-300";

// The text with numbers in place of Python's words outside of strings; the same text without them.
std::string without_words(std::string_view text) {
  std::string out;
  bool inside_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const std::string_view rest = text.substr(i);
    size_t word = 0;
    if (!inside_string && rest.starts_with("NaN")) word = 3;
    if (!inside_string && rest.starts_with("Infinity")) word = 8;
    if (word > 0) {
      out += word == 3 ? kNaN : kInfinity;
      i += word - 1;
      continue;
    }
    if (text[i] == '"') inside_string = !inside_string;
    out += text[i];
    if (inside_string && text[i] == '\\' && i + 1 < text.size()) out += text[++i];
  }
  return out;
}

Json number_of(const std::string& spelling) {
  const bool negative = spelling.starts_with('-');
  const std::string_view digits = std::string_view(spelling).substr(negative ? 1 : 0);
  if (digits == kNaN) return std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  return digits == kInfinity ? Json(negative ? -infinity : infinity) : Json(spelling);
}

}  // namespace

// Rows with such words are few: they are looked for in what is no JSON.
Json parse_json_row(std::string_view text, const std::string& where) {
  try {
    return parse_spelled_line(text, where, [](const std::string& spelling) { return spelling; });
  } catch (const Error&) {
    const std::string changed = without_words(text);
    if (changed == text) throw;
    return parse_spelled_line(changed, where, number_of);
  }
}

}  // namespace fsdp::data
