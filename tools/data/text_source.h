// Files of text as a sequence of documents: a plain file is one document or one a line, the other
// formats have one a row. Errors name file and line. A further format: text_format.h. Not here:
// which format a file has (text_format.h), the text of a row of several fields (row_template.h),
// which rows (row_subset.h), tokens (token_cache.h).
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/work_progress.h"
#include "core/io/file.h"
#include "tools/data/document.h"
#include "tools/data/objective.h"
#include "tools/data/row_template.h"
#include "tools/data/text_format.h"

namespace fsdp::data {

// What becomes of a row that is malformed, has another form or no text.
enum class BadRows : uint8_t { kFail, kSkip };

// What a plain text has: one document; its lines without their ends, blank ones left out; or all
// its lines with their ends, blank ones as empty documents (the rows of Hugging Face's wikitext).
enum class Lines : uint8_t { kTogether, kApart, kAll };

// How rows become conversations.
struct ChatRows {
  ConversationFields fields;
  std::optional<ChatFormat> format;  // none: no template is known
  FindSpecial special_in = nullptr;  // of the tokenizer; null: nobody asks
  SpecialInContent special = SpecialInContent::kAsSpecial;

  std::string identity() const;
};

struct TextOptions {
  TextFormat format = TextFormat::kAuto;
  std::string field = "text";  // of a row without a template
  BadRows bad_rows = BadRows::kFail;
  std::shared_ptr<const RowTemplate> row_template = nullptr;  // null: that of the format
  std::shared_ptr<const ChatRows> chat = nullptr;             // null: rows are no conversations
  Lines lines = Lines::kTogether;
  comm::WorkProgress* progress = nullptr;  // is told of what is read; null: nobody waits

  void tell(uint64_t read) const {
    if (progress) progress->add(read);
  }
  // The template of the format where there is no other; null: a row's text is one field.
  std::shared_ptr<const RowTemplate> template_of_rows() const;
};
// Whether a file has rows of JSON by its ending, and the first is a conversation that has no text
// in `field`.
bool begins_with_conversation(const std::filesystem::path& file, const ConversationFields& fields,
                              const std::string& field = "text");
// Whether a file has rows, or is one document.
bool has_rows(const std::filesystem::path& file, const TextOptions& options);

struct SkippedRow {
  std::string file;
  int64_t line = 0;  // 0: the whole file, which has no documents
  std::string reason;
  bool operator==(const SkippedRow&) const = default;
};
// A line for each: {"file": "a.jsonl", "line": 17, "reason": "malformed JSON: ..."}
std::string to_jsonl(const std::vector<SkippedRow>& rows);
std::vector<SkippedRow> parse_skipped_rows(std::string_view jsonl);

// Calls `use` with every document of the files in order. Error for a missing file, one that is of
// another kind (check_kind), invalid UTF-8 (file:line and byte), a malformed row, a row without a
// field that is needed, a field that is not text, files without any document. A byte order mark and
// blank lines between rows are skipped; so is a file without documents beside one that has some;
// so are, with kSkip, rows that are an error otherwise, unless no row of the file is left. Returns
// these files and rows.
std::vector<SkippedRow> for_each_document(const std::vector<std::filesystem::path>& files,
                                          const TextOptions& options, const UseDocument& use);
inline std::vector<SkippedRow> for_each_document(const std::filesystem::path& file,
                                                 const TextOptions& options,
                                                 const UseDocument& use) {
  return for_each_document(std::vector{file}, options, use);
}

// The document of the row at this place of a file of rows, as for_each_document said. `options`
// with the template that they name or imply, which is not looked up again for each row.
RowParts document_at(const MappedFile& file, const RowPlace& place, const TextOptions& options);

}  // namespace fsdp::data
