// Reading word by word. Contract: proc_text.h.
#include "tools/launch/proc_text.h"

#include <charconv>
#include <fstream>
#include <sstream>

namespace fsdp::tools::proc {

std::string text_of(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

std::string first_line_of(const std::filesystem::path& file) {
  std::string line;
  std::ifstream in(file);
  std::getline(in, line);
  return line;
}

std::vector<uint64_t> numbers_in(std::string_view text) {
  std::vector<uint64_t> numbers;
  const char* at = text.data();
  const char* const end = at + text.size();
  for (;;) {
    while (at != end && (*at == ' ' || *at == '\t')) ++at;
    uint64_t number = 0;
    const auto [rest, error] = std::from_chars(at, end, number);
    if (error != std::errc()) return numbers;
    numbers.push_back(number);
    at = rest;
  }
}

std::vector<uint64_t> numbers_of_line(std::string_view text, std::string_view name) {
  for (;;) {
    if (text.starts_with(name)) return numbers_in(text.substr(name.size()));
    const size_t end = text.find('\n');
    if (end == text.npos) return {};
    text.remove_prefix(end + 1);
  }
}

}  // namespace fsdp::tools::proc
