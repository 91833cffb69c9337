// Contract: tools/report/text_table.h.
#include "tools/report/text_table.h"

#include <algorithm>

namespace fsdp::tools {
namespace {

using Cells = std::vector<std::string>;

std::vector<size_t> widths_of(const TextTable& table) {
  std::vector<size_t> widths;
  for (size_t i = 0; i < table.heads.size(); ++i) {
    widths.push_back(width_of(table.heads[i]));
    for (const Cells& row : table.rows) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  return widths;
}

std::string line_of(const Cells& cells, const std::vector<size_t>& widths, const char* between) {
  std::string out;
  for (size_t i = 0; i < cells.size(); ++i) {
    out += (i > 0 ? between : "") + padded(cells[i], widths[i], i > 0);
  }
  return out;
}

// A cell is one line, and "|" would begin the next one.
std::string in_markdown(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

}  // namespace

size_t width_of(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;  // begins a character of UTF-8
  }));
}

std::string padded(const std::string& text, size_t width, bool right) {
  const std::string blanks(width - std::min(width, width_of(text)), ' ');
  return right ? blanks + text : text + blanks;
}

std::string side_by_side(const TextTable& table) {
  const std::vector<size_t> widths = widths_of(table);
  std::string out;
  const auto add = [&](const Cells& cells) {
    out += line_of(cells, widths, "  ");
    out.erase(out.find_last_not_of(' ') + 1);
    out += '\n';
  };
  add(table.heads);
  for (const Cells& row : table.rows) add(row);
  return out;
}

std::string markdown(const TextTable& table) {
  TextTable marked = table;
  for (std::string& head : marked.heads) head = in_markdown(head);
  for (Cells& row : marked.rows) {
    for (std::string& cell : row) cell = in_markdown(cell);
  }
  const std::vector<size_t> widths = widths_of(marked);
  const auto line = [&](const Cells& cells) {
    return "| " + line_of(cells, widths, " | ") + " |\n";
  };
  std::string out = line(marked.heads) + "|";
  for (size_t i = 0; i < widths.size(); ++i) {
    out += std::string(widths[i] + (i > 0 ? 1 : 2), '-') + (i > 0 ? ":|" : "|");
  }
  out += '\n';
  for (const Cells& row : marked.rows) out += line(row);
  return out;
}

}  // namespace fsdp::tools
