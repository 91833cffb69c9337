// Pieces of the page as HTML: text, tables, parts that open. Every text is escaped here and nowhere
// else. Not here: what is said (run_sections.h, comparison_sections.h, sweep_view.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace fsdp::tools {

struct Cell {
  std::string text = {};
  std::string tip = {};     // what a pointer on it shows
  std::string beside = {};  // smaller, behind the text
  bool is_number = false;   // to the right
};
// At most so many characters; how many there are is said behind them.
Cell text_cell(const std::string& text, size_t most = 300);
// Every digit is in the tip. None: "-".
Cell number_cell(std::optional<double> value, int digits);
Cell mib_cell(std::optional<double> bytes);

class HtmlTable {
 public:
  explicit HtmlTable(std::vector<std::string> head) : head_(std::move(head)) {}
  // `marked`: its cells are not alike.
  void row(const std::string& name, const std::vector<Cell>& cells, bool marked = false);
  bool empty() const { return rows_.empty(); }
  std::string html() const;

 private:
  std::vector<std::string> head_;  // the first column is that of the names
  std::string rows_;
  std::vector<bool> texts_;  // columns that have a text
};

std::string paragraph(const std::string& text);
std::string note(const std::string& text);  // small: what is lacking, how to read
std::string preformatted(const std::string& text);
// `html` below a line that opens and closes it.
std::string details(const std::string& summary, const std::string& html, bool open);
std::string section(const std::string& id, const std::string& title, const std::string& html);

}  // namespace fsdp::tools
