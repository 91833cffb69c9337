// Contract: tools/data/json_row.h.
#include "tools/data/json_row.h"

#include <cmath>
#include <limits>

#include "core/error.h"

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

void put_words(Json& value) {
  for (Json& inside : value) put_words(inside);
  if (!value.is_number_float()) return;
  const auto number = value.get<double>();
  if (std::abs(number) == 7.1875e-300) value = std::numeric_limits<double>::quiet_NaN();
  if (std::abs(number) == 7.1876e-300) {
    value = std::copysign(std::numeric_limits<double>::infinity(), number);
  }
}

}  // namespace

// Rows with such words are few: they are looked for in what is no JSON.
Json parse_json_row(std::string_view text, const std::string& where) {
  try {
    return parse_json_line(text, where);
  } catch (const Error&) {
    const std::string changed = without_words(text);
    if (changed == text) throw;
    Json out = parse_json_line(changed, where);
    put_words(out);
    return out;
  }
}

}  // namespace fsdp::data
