// Files of text as a sequence of documents: a plain file is one document, JSONL and Alpaca files
// have one a row. Errors name file and line. A further format (columns, several fields): a
// TextFormat here and its reader in text_source.cpp. Not here: which rows (row_subset.h), tokens
// (token_cache.h).
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/file.h"

namespace fsdp::data {

enum class TextFormat : uint8_t { kAuto, kText, kJsonl, kAlpaca };
inline constexpr std::array kTextFormats = {TextFormat::kAuto, TextFormat::kText,
                                            TextFormat::kJsonl, TextFormat::kAlpaca};
std::string_view name_of(TextFormat format);

// What becomes of a row that is malformed, has another form or no text.
enum class BadRows : uint8_t { kFail, kSkip };

// kAuto: kJsonl for names that end with .jsonl or .json, kText for others.
TextFormat format_of(const std::filesystem::path& file, TextFormat format);
// Whether a file of this format has rows, or is one document.
bool has_rows(const std::filesystem::path& file, TextFormat format);

struct TextOptions {
  TextFormat format = TextFormat::kAuto;
  std::string field = "text";  // of a JSONL row
  BadRows bad_rows = BadRows::kFail;
};

struct SkippedRow {
  std::string file;
  int64_t line = 0;
  std::string reason;
  bool operator==(const SkippedRow&) const = default;
};
// A line for each: {"file": "a.jsonl", "line": 17, "reason": "malformed JSON: ..."}
std::string to_jsonl(const std::vector<SkippedRow>& rows);
std::vector<SkippedRow> parse_skipped_rows(std::string_view jsonl);

// `begin`: where in the file the document or its row begins, in bytes.
using UseDocument = std::function<void(std::string_view document, size_t begin)>;

// Calls `use` with every document of the file in order. Error for a missing or empty file, invalid
// UTF-8 (file:line and byte), a malformed JSONL row, a row without the field, a field that is not
// text, a JSONL file without rows. A byte order mark and blank lines between rows are skipped; so
// are, with kSkip, rows that are an error otherwise, unless no row is left. Returns these.
std::vector<SkippedRow> for_each_document(const std::filesystem::path& file,
                                          const TextOptions& options, const UseDocument& use);

// The document of the row that begins at this byte of a JSONL file, as for_each_document said.
std::string document_at(const MappedFile& file, size_t begin, const TextOptions& options);

}  // namespace fsdp::data
