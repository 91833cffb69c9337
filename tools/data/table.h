// A table of text with a header, by RFC 4180: a cell in quotes may hold separators, line ends and,
// twice, quotes. Lines end with LF, CRLF or CR; blank ones are skipped. The text is walked, not
// held: a record is found again by its place. Not here: what text a row becomes (row_template.h).
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/json.h"
#include "tools/data/row_spans.h"

namespace fsdp::data {

class Table {
 public:
  // Reads the header. `text`: of the whole file, without its byte order mark; it must outlive the
  // table. Error that names `file` and the line for a header that is malformed. A text of blank
  // lines has no header and no records.
  Table(std::string_view text, char separator, const std::string& file);

  // Calls `use` with each record below the header, without its line end. Error that names the line
  // for a quoted cell that does not end: where the next record begins cannot be told.
  void for_each_record(const std::function<void(const RowSpan&)>& use) const;
  // The record at the beginning of this text.
  std::string_view record_at(std::string_view text) const;
  // Its cells, all of them texts, by the names of the header; of two columns with one name the
  // first, and none without a name. Error that begins with `where` for another number of cells than
  // the header has, and for text behind a closing quote.
  Json row_of(std::string_view record, const std::string& where) const;

 private:
  bool is_blank(std::string_view record) const;
  std::vector<std::string> cells_of(std::string_view record, const std::string& where) const;

  std::string_view text_;
  char separator_;
  const std::string file_;
  std::vector<std::string> names_;
  size_t begin_ = 0;  // of what follows the header
  int64_t line_ = 1;  // that it begins in
};

}  // namespace fsdp::data
