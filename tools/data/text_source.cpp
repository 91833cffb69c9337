// Text and JSONL files. Contract: tools/data/text_source.h.
#include "tools/data/text_source.h"

#include <algorithm>

#include "core/error.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "tools/data/tokenizer/utf8.h"

namespace fsdp::data {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

// first_line: the file's line number of the first byte of text.
void check_utf8(std::string_view text, const std::string& file, int64_t first_line,
                size_t first_byte) {
  const size_t bad = first_invalid_utf8(text);
  if (bad == text.size()) return;
  const auto line = first_line + std::count(text.begin(), text.begin() + bad, '\n');
  fail("{}:{}: invalid UTF-8: byte 0x{:02x} at offset {}", file, line,
       static_cast<uint8_t>(text[bad]), first_byte + bad);
}

std::string keys_of(const Json& object) {
  std::string out;
  for (const auto& [key, value] : object.items()) out += (out.empty() ? "" : ", ") + key;
  return out.empty() ? "none" : out;
}

// The text of one row; `where` is file:line.
std::string text_of_row(const Json& row, const std::string& where, const std::string& field) {
  FSDP_CHECK(row.is_object(), "{}: expected an object, got {}", where, row.type_name());
  FSDP_CHECK(row.contains(field), "{}: no field \"{}\" (fields: {})", where, field, keys_of(row));
  FSDP_CHECK(row[field].is_string(), "{}: field \"{}\": expected a string, got {}", where, field,
             row[field].type_name());
  return row[field].get<std::string>();
}

void for_each_row(std::string_view text, const std::string& file, const std::string& field,
                  size_t first_byte, const std::function<void(std::string_view)>& use) {
  bool any = false;
  int64_t line = 0;
  for (size_t begin = 0; begin < text.size();) {
    ++line;
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view row = text.substr(begin, end - begin);
    if (row.find_first_not_of(" \t\r") != std::string_view::npos) {
      check_utf8(row, file, line, first_byte + begin);
      const std::string where = fmt::format("{}:{}", file, line);
      use(text_of_row(parse_json_line(row, where), where, field));
      any = true;
    }
    begin = end + 1;
  }
  FSDP_CHECK(any, "{}: no rows", file);
}

}  // namespace

std::string_view name_of(TextFormat format) {
  switch (format) {
    case TextFormat::kAuto:
      return "auto";
    case TextFormat::kText:
      return "text";
    case TextFormat::kJsonl:
      return "jsonl";
  }
  fail("[data] format: {}", static_cast<int>(format));
}

TextFormat format_of(const std::filesystem::path& file, TextFormat format) {
  if (format != TextFormat::kAuto) return format;
  const std::string extension = file.extension().string();
  return extension == ".jsonl" || extension == ".json" ? TextFormat::kJsonl : TextFormat::kText;
}

void for_each_document(const std::filesystem::path& file, const TextOptions& options,
                       const std::function<void(std::string_view)>& use) {
  const MappedFile mapped(file);
  std::string_view text = mapped.text();
  const size_t skipped = text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
  text.remove_prefix(skipped);
  FSDP_CHECK(!text.empty(), "{}: the file is empty", file.string());
  if (format_of(file, options.format) == TextFormat::kJsonl) {
    for_each_row(text, file.string(), options.field, skipped, use);
  } else {
    check_utf8(text, file.string(), 1, skipped);
    use(text);
  }
}

}  // namespace fsdp::data
