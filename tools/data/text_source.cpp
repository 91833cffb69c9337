// Text and JSONL files. Contract: tools/data/text_source.h.
#include "tools/data/text_source.h"

#include <algorithm>
#include <optional>

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

// What is wrong with a row, of an error that begins with its place.
std::string reason_of(const Error& error, const std::string& where) {
  const std::string_view text = error.what();
  return std::string(text.starts_with(where + ": ") ? text.substr(where.size() + 2) : text);
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

std::vector<SkippedRow> for_each_row(std::string_view text, const std::string& file,
                                     const TextOptions& options, size_t first_byte,
                                     const UseDocument& use) {
  std::vector<SkippedRow> skipped;
  bool any = false;
  int64_t line = 0;
  for (size_t begin = 0; begin < text.size();) {
    ++line;
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view row = text.substr(begin, end - begin);
    if (row.find_first_not_of(" \t\r") != std::string_view::npos) {
      const std::string where = fmt::format("{}:{}", file, line);
      std::optional<std::string> document;
      try {
        check_utf8(row, file, line, first_byte + begin);
        document = text_of_row(parse_json_line(row, where), where, options.field);
      } catch (const Error& error) {
        if (options.bad_rows == BadRows::kFail) throw;
        skipped.push_back({file, line, reason_of(error, where)});
      }
      if (document) use(*document, first_byte + begin);
      any = any || document;
    }
    begin = end + 1;
  }
  FSDP_CHECK(any || !skipped.empty(), "{}: no rows", file);
  FSDP_CHECK(any, "{}: no row is left: all {} would be skipped, the first in line {}: {}", file,
             skipped.size(), skipped[0].line, skipped[0].reason);
  return skipped;
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

std::vector<SkippedRow> for_each_document(const std::filesystem::path& file,
                                          const TextOptions& options, const UseDocument& use) {
  const MappedFile mapped(file);
  std::string_view text = mapped.text();
  const size_t skipped = text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
  text.remove_prefix(skipped);
  FSDP_CHECK(!text.empty(), "{}: the file is empty", file.string());
  if (format_of(file, options.format) == TextFormat::kJsonl) {
    return for_each_row(text, file.string(), options, skipped, use);
  }
  check_utf8(text, file.string(), 1, skipped);
  use(text, skipped);
  return {};
}

std::string document_at(const MappedFile& file, size_t begin, const TextOptions& options) {
  const std::string where = fmt::format("{}: byte {}", file.path().string(), begin);
  FSDP_CHECK(begin < file.size(), "{}: expected a row, got the end of the file", where);
  const std::string_view text = file.text().substr(begin);
  return text_of_row(parse_json_line(text.substr(0, text.find('\n')), where), where, options.field);
}

std::string to_jsonl(const std::vector<SkippedRow>& rows) {
  std::string out;
  for (const SkippedRow& row : rows) {
    Json line = Json::object();
    line["file"] = row.file;
    line["line"] = row.line;
    line["reason"] = row.reason;
    out += line.dump({.replace = true}) + "\n";
  }
  return out;
}

std::vector<SkippedRow> parse_skipped_rows(std::string_view jsonl) {
  std::vector<SkippedRow> out;
  while (!jsonl.empty()) {
    const size_t end = std::min(jsonl.find('\n'), jsonl.size() - 1);
    const Json row = parse_json_line(jsonl.substr(0, end + 1), "skipped rows");
    out.push_back({row["file"], row["line"], row["reason"]});
    jsonl.remove_prefix(end + 1);
  }
  return out;
}

}  // namespace fsdp::data
