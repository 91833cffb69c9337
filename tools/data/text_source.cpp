// Texts and files of rows. Contract: tools/data/text_source.h.
#include "tools/data/text_source.h"

#include <algorithm>
#include <optional>

#include "core/error.h"
#include "core/io/file.h"
#include "core/io/forget_pages.h"
#include "core/io/json.h"
#include "tools/data/json_row.h"
#include "tools/data/row_hints.h"
#include "tools/data/row_spans.h"
#include "tools/data/squad.h"
#include "tools/data/table.h"
#include "tools/data/tokenizer/utf8.h"

namespace fsdp::data {
namespace {

// first_line: the file's line number of the first byte of text.
void check_utf8(std::string_view text, const std::string& file, int64_t first_line,
                size_t first_byte) {
  const size_t bad = first_invalid_utf8(text);
  if (bad == text.size()) return;
  const auto line = first_line + std::count(text.begin(), text.begin() + bad, '\n');
  fail("{}:{}: invalid UTF-8: byte 0x{:02x} at offset {}", file, line,
       static_cast<uint8_t>(text[bad]), first_byte + bad);
}

// Piece by piece, each of whole characters, so that a large file is not in memory all at once.
void check_text(std::string_view text, const MappedFile& file, size_t first_byte,
                const TextOptions& options) {
  int64_t line = 1;
  while (!text.empty()) {
    size_t end = std::min(text.size(), kForgetBytes);
    const auto inside = [&] { return (static_cast<uint8_t>(text[end]) & 0xc0) == 0x80; };
    for (int i = 0; i < 3 && end < text.size() && inside(); ++i) --end;
    const std::string_view piece = text.substr(0, end);
    check_utf8(piece, file.path().string(), line, first_byte);
    line += std::count(piece.begin(), piece.end(), '\n');
    first_byte += end;
    options.tell(end);
    text.remove_prefix(end);
    if (!text.empty()) forget_pages(file);
  }
}

// What is wrong with a row, of an error that begins with its place.
std::string reason_of(const Error& error, const std::string& where) {
  const std::string_view text = error.what();
  return std::string(text.starts_with(where + ": ") ? text.substr(where.size() + 2) : text);
}

// Where the text of special tokens stays a text, the template must copy the messages as they are.
ChatText marked_text_of(const ChatFormat& format, const Conversation& conversation,
                        const Conversation& marked, const std::string& where) {
  ChatText out = format.text_of(marked, where);
  FSDP_CHECK(
      without_marks(out.text) == format.text_of(conversation, where).text,
      "{}: data.special_in_content: as_text: the chat template changes the text of a special "
      "token in a message, or asks for it",
      where);
  out.marked = true;
  return out;
}

RowParts chat_of_row(const Json& row, const std::string& where, const ChatRows& rows) {
  Conversation conversation = conversation_of(row, where, rows.fields);
  const bool as_text = rows.special == SpecialInContent::kAsText;
  const Conversation unmarked = as_text ? conversation : Conversation();
  if (rows.special_in) find_special(rows.special_in, as_text, where, conversation);
  FSDP_CHECK(conversation.is_plain || rows.format,
             "{}: a conversation, but no chat template is known: the tokenizer's folder has none; "
             "data.chat_template names one (chatml, llama3, zephyr, vicuna, or a file)",
             where);
  const bool marked =
      as_text && std::ranges::find(conversation.special, true) != conversation.special.end();
  RowParts out;
  ChatText chat;
  if (conversation.is_plain) {
    chat = plain_text_of(conversation);
    chat.marked = marked;
  } else if (marked) {
    chat = marked_text_of(*rows.format, unmarked, conversation, where);
  } else {
    chat = rows.format->text_of(conversation, where);
  }
  out.chat = std::make_shared<const ChatText>(std::move(chat));
  return out;
}

// The parts of one row of JSON; `where` is file:line.
RowParts parts_of_row(const Json& row, const std::string& where, const TextOptions& options) {
  if (options.chat) return chat_of_row(row, where, *options.chat);
  if (options.row_template) return options.row_template->fill(row, where);
  return {.text = field_of(row, where, options.field), .cue = "", .answer = ""};
}

// Of an array of JSON an element may be a text instead of an object: the field `text` of a row. For
// a template a row that is an array has the fields 0, 1, ..., and numbers are as they are spelled.
Json row_of_json(std::string_view text, Spans spans, const std::string& where,
                 const TextOptions& options) {
  const bool filled = options.row_template != nullptr;
  Json row = parse_json_row(text, where, filled ? Numbers::kSpelled : Numbers::kValues);
  Json out = Json::object();
  if (filled && row.is_array() &&
      std::none_of(row.begin(), row.end(), [](const Json& field) { return field.is_object(); })) {
    for (size_t i = 0; i < row.size(); ++i) out[std::to_string(i)] = row[i];
    return out;
  }
  if (spans != Spans::kElements || !row.is_string()) return row;
  out["text"] = std::move(row);
  return out;
}

// The format of a file that holds rows, where Alpaca's and conversations may be a table too.
TextFormat format_of_rows(const std::string& file, TextFormat format) {
  const TextFormat found = format_of(file, format);
  if (found != TextFormat::kAlpaca && found != TextFormat::kMessages) return found;
  const TextFormat by_ending = format_of(file, TextFormat::kAuto);
  return by_ending == TextFormat::kText ? TextFormat::kJsonl : by_ending;
}

// Each line with its end, blank or not.
void for_each_raw_line(std::string_view text, const std::function<void(const RowSpan&)>& use) {
  int64_t line = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size() - 1) + 1;
    use({text.substr(begin, end - begin), ++line, begin});
    begin = end;
  }
}

std::string text_of_line(std::string_view line, Lines lines) {
  if (line.find_first_not_of(" \t\r\n\f\v") == line.npos) return "";
  if (lines == Lines::kApart && line.ends_with('\r')) line.remove_suffix(1);
  return std::string(line);
}

// A row as it lies in its file, and how it is read.
struct FoundRow {
  int64_t line = 0;
  RowPlace place;
  std::function<RowParts(const std::string& where)> read;
};

// Calls `use` with every row of a file, good or bad.
class RowWalk {
 public:
  // `text`: of the file, behind its first bytes.
  RowWalk(std::string_view text, const std::string& file, const TextOptions& options,
          size_t first_byte)
      : text_(text),
        file_(file),
        options_(options),
        format_(format_of_rows(file, options.format)),
        spans_(format_ == TextFormat::kJsonl ? spans_of(text) : Spans::kLines),
        first_byte_(first_byte) {}

  void walk(const std::function<void(const FoundRow&)>& use) const {
    if (format_ == TextFormat::kSquad) return walk_questions(use);
    if (is_table(format_)) {
      const Table table(text_, traits_of(format_).separator, file_);
      return table.for_each_record(
          reading(use, [&](std::string_view row, const std::string& where) {
            return parts_of_row(table.row_of(row, where), where, options_);
          }));
    }
    const auto use_span = reading(use, [&](std::string_view row, const std::string& where) {
      if (format_ == TextFormat::kText) return RowParts{.text = text_of_line(row, options_.lines)};
      return parts_of_row(row_of_json(row, spans_, where, options_), where, options_);
    });
    const bool all_lines = format_ == TextFormat::kText && options_.lines == Lines::kAll;
    if (all_lines) return for_each_raw_line(text_, use_span);
    for_each_span(text_, spans_, file_, use_span);
  }

  // Rows of a JSON array may all stand in one line: their number says which it is.
  bool numbers_rows() const { return format_ == TextFormat::kSquad || spans_ == Spans::kElements; }

 private:
  using Read = std::function<RowParts(std::string_view row, const std::string& where)>;

  std::function<void(const RowSpan&)> reading(const std::function<void(const FoundRow&)>& use,
                                              const Read& read) const {
    return [this, &use, read](const RowSpan& row) {
      use({row.line,
           {.begin = first_byte_ + row.begin, .inside = 0},
           [&](const std::string& where) {
             check_utf8(row.text, file_, row.line, first_byte_ + row.begin);
             return read(row.text, where);
           }});
    };
  }

  void walk_questions(const std::function<void(const FoundRow&)>& use) const {
    for_each_question(text_, file_, [&](const QuestionSpan& question) {
      const RowPlace place = {.begin = question.place.begin + first_byte_,
                              .inside = question.place.inside};
      use({question.line, place, [&](const std::string& where) {
             return parts_of_row(row_of(question, where), where, options_);
           }});
    });
  }

  std::string_view text_;
  const std::string& file_;
  const TextOptions& options_;
  TextFormat format_;
  Spans spans_;
  size_t first_byte_;
};

// Of a file of rows; one with line 0 where it has none.
std::vector<SkippedRow> for_each_row(const MappedFile& mapped, std::string_view text,
                                     const TextOptions& options, const UseDocument& use) {
  std::vector<SkippedRow> skipped;
  const std::string file = mapped.path().string();
  const TextFormat format = format_of(file, options.format);
  const bool guessed = options.format == TextFormat::kAuto && format == TextFormat::kJsonl;
  const std::string columns = guessed ? hint_of_columns(text, file) : "";
  FSDP_CHECK(columns.empty(), "{}: {}; data.format: jsonl takes it as one row", file, columns);
  const RowWalk rows(text, file, options, mapped.size() - text.size());
  int64_t number = 0;
  uint64_t remembered = 0;  // from this byte on
  bool any = false;
  rows.walk([&](const FoundRow& row) {
    const std::string where = fmt::format("{}:{}", file, row.line);
    std::optional<RowParts> parts;
    ++number;
    options.tell(1);
    try {
      parts = row.read(where);
    } catch (const Error& error) {
      const std::string which = rows.numbers_rows() ? fmt::format(" (row {})", number) : "";
      if (options.bad_rows == BadRows::kFail) {
        const std::string hint =
            options.chat ? "" : hint_of_rows(text, file, format, options.row_template != nullptr);
        fail("{}{}{}{}", error.what(), which, hint.empty() ? "" : "; ", hint);
      }
      skipped.push_back({file, row.line, reason_of(error, where) + which});
    }
    if (parts) {
      use({.text = parts->text,
           .cue = parts->cue,
           .answer = parts->answer,
           .place = row.place,
           .chat = parts->chat.get()});
    }
    any = any || parts;
    if (row.place.begin - remembered < kForgetBytes) return;
    forget_pages(mapped);
    remembered = row.place.begin;
  });
  if (!any && skipped.empty()) return {{file, 0, "no rows"}};
  FSDP_CHECK(any, "{}: no row is left: all {} would be skipped, the first in line {}: {}", file,
             skipped.size(), skipped[0].line, skipped[0].reason);
  return skipped;
}

// The same of any file.
std::vector<SkippedRow> documents_of(const std::filesystem::path& file, const TextOptions& options,
                                     const UseDocument& use) {
  const MappedFile mapped(file);
  const std::string_view text = without_byte_order_mark(mapped.text());
  const size_t skipped = mapped.size() - text.size();
  if (text.empty()) return {{file.string(), 0, "the file is empty"}};
  check_kind(mapped, options.format);
  if (has_rows(file, options)) return for_each_row(mapped, text, options, use);
  check_text(text, mapped, skipped, options);
  use({.text = text, .place = {.begin = skipped}, .file = &mapped});
  return {};
}

}  // namespace

bool has_rows(const std::filesystem::path& file, const TextOptions& options) {
  return options.lines != Lines::kTogether || format_of(file, options.format) != TextFormat::kText;
}

std::string ChatRows::identity() const {
  return fmt::format("{}\n{}\n{}\n{}", fields.messages, Json(fields.roles).dump(),
                     static_cast<int>(special), format ? format->identity() : "");
}

bool begins_with_conversation(const std::filesystem::path& file, const ConversationFields& fields,
                              const std::string& field) {
  const bool rows = format_of(file, TextFormat::kAuto) == TextFormat::kJsonl;
  if (!rows || !std::filesystem::is_regular_file(file)) return false;
  const MappedFile mapped(file);
  const std::string_view row = first_object(without_byte_order_mark(mapped.text()));
  try {
    if (row.empty()) return false;
    const Json first = parse_json_row(row, file.string());
    return is_conversation(first, fields) && !first.contains(field);
  } catch (const Error&) {  // for_each_document says what is wrong with it
    return false;
  }
}

std::shared_ptr<const RowTemplate> TextOptions::template_of_rows() const {
  if (row_template) return row_template;
  const std::string name(traits_of(format).row_template);
  return name.empty() ? nullptr : find_template(name);
}

std::vector<SkippedRow> for_each_document(const std::vector<std::filesystem::path>& files,
                                          const TextOptions& options, const UseDocument& use) {
  FSDP_CHECK(!files.empty(), "[data] expected at least one file");
  TextOptions complete = options;
  complete.row_template = options.template_of_rows();
  std::vector<SkippedRow> out;
  size_t empty = 0;
  for (size_t number = 0; number < files.size(); ++number) {
    const auto of_file = documents_of(files[number], complete, [&](Document document) {
      document.file_number = number;
      use(document);
    });
    out.insert(out.end(), of_file.begin(), of_file.end());
    empty += !of_file.empty() && of_file.front().line == 0;
  }
  const bool all_empty = empty == files.size();
  const std::string others =
      empty > 1 ? fmt::format(", as in the other {} file{}", empty - 1, empty > 2 ? "s" : "") : "";
  FSDP_CHECK(!all_empty, "{}: {}{}", out.at(0).file, out.at(0).reason, others);
  return out;
}

RowParts document_at(const MappedFile& file, const RowPlace& place, const TextOptions& options) {
  const std::string where = fmt::format("{}: byte {}", file.path().string(), place.begin);
  FSDP_CHECK(place.begin < file.size(), "{}: expected a row, got the end of the file", where);
  const TextFormat format = format_of_rows(file.path().string(), options.format);
  if (format == TextFormat::kSquad) {
    const QuestionSpan question = question_at(file.text(), place, file.path().string());
    return parts_of_row(row_of(question, where), where, options);
  }
  const std::string_view rest = file.text().substr(place.begin);
  if (format == TextFormat::kText) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const size_t with_end = std::min(end + 1, rest.size());
    const bool all = options.lines == Lines::kAll;
    return {.text = text_of_line(rest.substr(0, all ? with_end : end), options.lines)};
  }
  const std::string_view text = without_byte_order_mark(file.text());
  if (is_table(format)) {
    const Table table(text, traits_of(format).separator, file.path().string());
    return parts_of_row(table.row_of(table.record_at(rest), where), where, options);
  }
  const Spans spans = spans_of(text);
  return parts_of_row(row_of_json(span_at(rest, spans), spans, where, options), where, options);
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
