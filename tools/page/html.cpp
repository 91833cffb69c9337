// Contract: tools/page/html.h.
#include "tools/page/html.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "core/text/numbers.h"
#include "tools/report/svg_canvas.h"

namespace fsdp::tools {
namespace {

// markup_text() has no line breaks; HTML has, where the style of the element keeps them.
std::string lines_text(const std::string& text) {
  std::string out;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    out += (begin > 0 ? "\n" : "") + markup_text(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

}  // namespace

Cell text_cell(const std::string& text, size_t most) {
  if (text.size() <= most) return {.text = text};
  size_t end = most;  // not within a character of UTF-8
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return {.text = text.substr(0, end) + "...",
          .beside = fmt::format("{} bytes", format_count(static_cast<int64_t>(text.size())))};
}

Cell number_cell(std::optional<double> value, int digits) {
  if (!value) return {.text = "-", .is_number = true};
  return {.text = digits == 0 ? format_count(std::llround(*value))
                              : fmt::format("{:.{}f}", *value, digits),
          .tip = format_value(*value),
          .is_number = true};
}

Cell mib_cell(std::optional<double> bytes) {
  Cell cell = number_cell(bytes, 2);
  if (bytes) cell.text = fmt::format("{:.2f}", *bytes / (1 << 20)), cell.tip += " bytes";
  return cell;
}

void HtmlTable::row(const std::string& name, const std::vector<Cell>& cells, bool marked) {
  rows_ += fmt::format("<tr{}><th>{}</th>", marked ? " class=\"differs\"" : "", markup_text(name));
  texts_.resize(std::max(texts_.size(), cells.size()));
  for (size_t i = 0; i < cells.size(); ++i) {
    const Cell& cell = cells[i];
    if (!cell.is_number && !cell.text.empty()) texts_[i] = true;
    rows_ += cell.is_number ? "<td class=\"number\"" : "<td";
    if (!cell.tip.empty()) rows_ += " title=\"" + markup_text(cell.tip) + "\"";
    rows_ += ">" + lines_text(cell.text);
    if (!cell.beside.empty()) rows_ += " <small>" + markup_text(cell.beside) + "</small>";
    rows_ += "</td>";
  }
  rows_ += "</tr>\n";
}

std::string HtmlTable::html() const {
  std::string out = "<div class=\"wide\"><table>\n<thead><tr>";
  for (size_t i = 0; i < head_.size(); ++i) {
    const bool numbers = i > 0 && i <= texts_.size() && !texts_[i - 1];
    out += fmt::format("<th{}>{}</th>", numbers ? " class=\"number\"" : "", markup_text(head_[i]));
  }
  return out + "</tr></thead>\n<tbody>\n" + rows_ + "</tbody></table></div>\n";
}

std::string paragraph(const std::string& text) { return "<p>" + lines_text(text) + "</p>\n"; }

std::string note(const std::string& text) {
  return "<p class=\"note\">" + lines_text(text) + "</p>\n";
}

std::string preformatted(const std::string& text) {
  return "<pre>" + lines_text(text) + "\n</pre>\n";
}

std::string details(const std::string& summary, const std::string& html, bool open) {
  return fmt::format("<details{}><summary>{}</summary>\n{}</details>\n", open ? " open" : "",
                     markup_text(summary), html);
}

std::string section(const std::string& id, const std::string& title, const std::string& html) {
  return fmt::format("<section id=\"{}\"><h2>{}</h2>\n{}</section>\n", id, markup_text(title),
                     html);
}

}  // namespace fsdp::tools
