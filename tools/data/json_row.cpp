// Contract: tools/data/json_row.h.
#include "tools/data/json_row.h"

#include <cstdlib>
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

// Of a number that stands for a word: the one that it names; null: it stands for itself.
Json number_of(std::string_view spelling) {
  const bool negative = spelling.starts_with('-');
  if (negative) spelling.remove_prefix(1);
  const double infinity = std::numeric_limits<double>::infinity();
  if (spelling == kInfinity) return negative ? -infinity : infinity;
  return spelling == kNaN ? Json(std::numeric_limits<double>::quiet_NaN()) : Json();
}

}  // namespace

// Rows with such words are few: they are looked for in what is no JSON.
Json parse_json_row(std::string_view text, const std::string& where, Numbers numbers) {
  const auto use = [&](const std::string& spelling) -> Json {
    if (numbers == Numbers::kSpelled) return spelling;
    return std::strtod(spelling.c_str(), nullptr);
  };
  try {
    return parse_spelled_line(text, where, use);
  } catch (const Error&) {
    const std::string changed = without_words(text);
    if (changed == text) throw;
    return parse_spelled_line(changed, where, [&](const std::string& spelling) {
      const Json word = number_of(spelling);
      return word.is_null() ? use(spelling) : word;
    });
  }
}

}  // namespace fsdp::data
