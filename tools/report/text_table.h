// A table of texts, for people: columns side by side, or Markdown. As CSV: case_table.h.
#pragma once

#include <string>
#include <vector>

namespace fsdp::tools {

struct TextTable {
  std::vector<std::string> heads;
  std::vector<std::vector<std::string>> rows;  // each as long as the heads
};

// Every column is as wide as its longest text. The first one begins at the left, the others end at
// the right.
std::string side_by_side(const TextTable& table);
std::string markdown(const TextTable& table);

// How wide a text is: "±" is two bytes.
size_t width_of(const std::string& text);
// With blanks, which stand in front where `right`.
std::string padded(const std::string& text, size_t width, bool right = false);

}  // namespace fsdp::tools
