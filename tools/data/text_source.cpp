// Texts and files of rows. Contract: tools/data/text_source.h.
#include "tools/data/text_source.h"

#include <algorithm>
#include <optional>

#include "core/error.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "tools/data/alpaca.h"
#include "tools/data/row_spans.h"
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

std::string field_of(const Json& row, const std::string& where, const std::string& field) {
  FSDP_CHECK(row.is_object(), "{}: expected an object, got {}", where, row.type_name());
  FSDP_CHECK(row.contains(field), "{}: no field \"{}\" (fields: {})", where, field, keys_of(row));
  FSDP_CHECK(row[field].is_string(), "{}: field \"{}\": expected a string, got {}", where, field,
             row[field].type_name());
  return row[field].get<std::string>();
}

// The text of one row; `where` is file:line.
std::string text_of_row(std::string_view text, const std::string& where, TextFormat format,
                        const std::string& field) {
  const Json row = parse_json_line(text, where);
  if (format != TextFormat::kAlpaca) return field_of(row, where, field);
  const std::string instruction = field_of(row, where, "instruction");
  const std::string input = row.contains("input") ? field_of(row, where, "input") : "";
  return alpaca_text(instruction, input, field_of(row, where, "output"));
}

// Only of Alpaca's files: a line of JSONL that begins with a bracket is a bad row.
bool rows_are_elements(std::string_view text, TextFormat format) {
  return format == TextFormat::kAlpaca && is_array(text);
}

std::vector<SkippedRow> for_each_row(std::string_view text, const std::string& file,
                                     const TextOptions& options, size_t first_byte,
                                     const UseDocument& use) {
  std::vector<SkippedRow> skipped;
  bool any = false;
  const TextFormat format = format_of(file, options.format);
  for_each_span(text, rows_are_elements(text, format), file, [&](const RowSpan& row) {
    const std::string where = fmt::format("{}:{}", file, row.line);
    std::optional<std::string> document;
    try {
      check_utf8(row.text, file, row.line, first_byte + row.begin);
      document = text_of_row(row.text, where, format, options.field);
    } catch (const Error& error) {
      if (options.bad_rows == BadRows::kFail) throw;
      skipped.push_back({file, row.line, reason_of(error, where)});
    }
    if (document) use(*document, first_byte + row.begin);
    any = any || document;
  });
  FSDP_CHECK(any || !skipped.empty(), "{}: no rows", file);
  FSDP_CHECK(any, "{}: no row is left: all {} would be skipped, the first in line {}: {}", file,
             skipped.size(), skipped[0].line, skipped[0].reason);
  return skipped;
}

std::string_view without_mark(std::string_view text) {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  return text;
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
    case TextFormat::kAlpaca:
      return "alpaca";
  }
  fail("[data] format: {}", static_cast<int>(format));
}

TextFormat format_of(const std::filesystem::path& file, TextFormat format) {
  if (format != TextFormat::kAuto) return format;
  const std::string extension = file.extension().string();
  return extension == ".jsonl" || extension == ".json" ? TextFormat::kJsonl : TextFormat::kText;
}

bool has_rows(const std::filesystem::path& file, TextFormat format) {
  return format_of(file, format) != TextFormat::kText;
}

std::vector<SkippedRow> for_each_document(const std::filesystem::path& file,
                                          const TextOptions& options, const UseDocument& use) {
  const MappedFile mapped(file);
  const std::string_view text = without_mark(mapped.text());
  const size_t skipped = mapped.size() - text.size();
  FSDP_CHECK(!text.empty(), "{}: the file is empty", file.string());
  if (has_rows(file, options.format)) {
    return for_each_row(text, file.string(), options, skipped, use);
  }
  check_utf8(text, file.string(), 1, skipped);
  use(text, skipped);
  return {};
}

std::string document_at(const MappedFile& file, size_t begin, const TextOptions& options) {
  const std::string where = fmt::format("{}: byte {}", file.path().string(), begin);
  FSDP_CHECK(begin < file.size(), "{}: expected a row, got the end of the file", where);
  const TextFormat format = format_of(file.path(), options.format);
  const bool array = rows_are_elements(without_mark(file.text()), format);
  return text_of_row(span_at(file.text().substr(begin), array), where, format, options.field);
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
