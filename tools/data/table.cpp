// A record ends at the first line end outside of quotes; quotes count where a cell begins with one.
// Contract: tools/data/table.h.
#include "tools/data/table.h"

#include <algorithm>

#include "core/error.h"
#include "tools/data/tokenizer/utf8.h"

namespace fsdp::data {
namespace {

constexpr auto kNone = std::string_view::npos;

// The closing quote of the cell whose opening quote is at `open`; kNone: there is none.
size_t closing_quote(std::string_view text, size_t open) {
  size_t at = text.find('"', open + 1);
  while (at != kNone && at + 1 < text.size() && text[at + 1] == '"') at = text.find('"', at + 2);
  return at;
}

// Where the line end of the record at the beginning is, or the text's end; kNone: a quoted cell
// does not end.
size_t end_of_record(std::string_view text, char separator) {
  bool begins = true;  // a cell
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n' || c == '\r') return i;
    if (begins && c == '"') {
      i = closing_quote(text, i);
      if (i == kNone) return kNone;
    }
    begins = c == separator;
  }
  return text.size();
}

size_t behind_line_end(std::string_view text, size_t at) {
  return std::min(at + (text.substr(at).starts_with("\r\n") ? 2 : 1), text.size());
}

int64_t line_ends(std::string_view text) {
  int64_t count = 0;
  for (size_t at = text.find_first_of("\r\n"); at != kNone; at = text.find_first_of("\r\n", at)) {
    at = behind_line_end(text, at);
    ++count;
  }
  return count;
}

}  // namespace

Table::Table(std::string_view text, char separator, const std::string& file)
    : text_(text), separator_(separator), file_(file) {
  bool found = false;
  while (begin_ < text.size() && !found) {
    const std::string_view rest = text.substr(begin_);
    const std::string_view record = record_at(rest);
    found = !is_blank(record);
    if (found) names_ = cells_of(record, fmt::format("{}:{}", file, line_));
    FSDP_CHECK(!found || first_invalid_utf8(record) == record.size(),
               "{}:{}: invalid UTF-8 in the names of the columns", file, line_);
    const size_t next = behind_line_end(rest, record.size());
    line_ += line_ends(rest.substr(0, next));
    begin_ += next;
  }
}

void Table::for_each_record(const std::function<void(const RowSpan&)>& use) const {
  int64_t line = line_;
  for (size_t begin = begin_; begin < text_.size();) {
    const std::string_view rest = text_.substr(begin);
    const size_t end = end_of_record(rest, separator_);
    FSDP_CHECK(end != kNone, "{}:{}: malformed table: a cell in quotes does not end", file_, line);
    const std::string_view record = rest.substr(0, end);
    if (!is_blank(record)) use({record, line, begin});
    const size_t next = behind_line_end(rest, end);
    line += line_ends(rest.substr(0, next));
    begin += next;
  }
}

// A line of tabs has cells where tabs separate them.
bool Table::is_blank(std::string_view record) const {
  return record.find_first_not_of(separator_ == '\t' ? " " : " \t") == kNone;
}

std::string_view Table::record_at(std::string_view text) const {
  return text.substr(0, end_of_record(text, separator_));
}

std::vector<std::string> Table::cells_of(std::string_view record, const std::string& where) const {
  std::vector<std::string> out;
  for (size_t at = 0;; ++at) {  // past the separator
    std::string cell;
    size_t end = std::min(record.find(separator_, at), record.size());
    if (record.substr(at).starts_with('"')) {
      const size_t close = closing_quote(record, at);
      FSDP_CHECK(close != kNone, "{}: malformed table: a cell in quotes does not end", where);
      for (size_t i = at + 1; i < close; ++i) {
        cell += record[i];
        if (record[i] == '"') ++i;
      }
      end = close + 1;
      FSDP_CHECK(end == record.size() || record[end] == separator_,
                 "{}: malformed table: text behind the closing quote of cell {}: a quote within "
                 "quotes is written twice",
                 where, out.size() + 1);
    } else {
      cell = record.substr(at, end - at);
    }
    out.push_back(std::move(cell));
    if (end == record.size()) return out;
    at = end;
  }
}

Json Table::row_of(std::string_view record, const std::string& where) const {
  std::vector<std::string> cells = cells_of(record, where);
  FSDP_CHECK(cells.size() == names_.size(),
             "{}: expected {} cell{} as the header has, got {} (a cell with a separator or a line "
             "end stands in quotes)",
             where, names_.size(), names_.size() == 1 ? "" : "s", cells.size());
  Json row = Json::object();
  for (size_t i = 0; i < cells.size(); ++i) {
    if (names_[i].empty() || row.contains(names_[i])) continue;
    row[names_[i]] = std::move(cells[i]);
  }
  return row;
}

}  // namespace fsdp::data
