// Contract: tools/data/tokenizer/python_json.h.
#include "tools/data/tokenizer/python_json.h"

#include <array>
#include <cctype>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/io/file.h"

namespace fsdp::data {
namespace {

// NaN and Infinity become numbers of the same length: errors name the line of the file.
std::string with_numbers(std::string text, const std::string& source) {
  using Pair = std::pair<std::string_view, std::string_view>;
  constexpr std::array kNumbers = {Pair("NaN", "1.0"), Pair("Infinity", "1e+00308")};
  constexpr int kMostLevels = 64;
  int levels = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') quoted = !quoted;
    if (quoted && c == '\\') ++i;
    if (quoted) continue;
    levels += (c == '[' || c == '{') - (c == ']' || c == '}');
    FSDP_CHECK(levels <= kMostLevels, "{}: malformed JSON: nested more than {} levels deep", source,
               kMostLevels);
    if (i > 0 && std::isalnum(static_cast<unsigned char>(text[i - 1]))) continue;
    for (const auto& [name, number] : kNumbers) {
      if (text.compare(i, name.size(), name) == 0) text.replace(i, name.size(), number);
    }
  }
  return text;
}

void keep_last_of_each(Json& value) {
  if (value.is_array()) {
    for (Json& element : value) keep_last_of_each(element);
  }
  if (!value.is_object()) return;
  std::set<std::string> names;
  for (auto& [name, member] : value.items()) {
    keep_last_of_each(member);
    names.insert(name);
  }
  if (names.size() == value.size()) return;
  Json kept = Json::object();
  for (auto& [name, member] : value.items()) kept[name] = std::move(member);
  value = std::move(kept);
}

}  // namespace

Json read_python_json(const std::filesystem::path& file) {
  const std::string text = with_numbers(read_file(file), file.string());
  try {
    Json out = Json::parse(text);
    keep_last_of_each(out);
    return out;
  } catch (const JsonError&) {
    return parse_json(text, file.string());  // throws, and says in which line
  }
}

}  // namespace fsdp::data
