// Contract: tools/data/tokenizer/clean_up.h.
#include "tools/data/tokenizer/clean_up.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace fsdp::data {
namespace {

// One after the other, each in all of the text.
constexpr std::pair<std::string_view, std::string_view> kCleaned[] = {
    {" .", "."},     {" ?", "?"},   {" !", "!"},   {" ,", ","},     {" ' ", "'"},
    {" n't", "n't"}, {" 'm", "'m"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};

}  // namespace

std::string clean_up_spaces(std::string text) {
  for (const auto& [from, to] : kCleaned) {
    std::string out;  // and not in its place: each replacement would move the rest
    size_t done = 0;
    for (size_t at; (at = text.find(from, done)) != text.npos; done = at + from.size()) {
      out.append(text, done, at - done).append(to);
    }
    text = std::move(out.append(text, done));
  }
  return text;
}

bool may_be_cleaned_up(std::string_view text) {
  return std::any_of(std::begin(kCleaned), std::end(kCleaned), [&](const auto& pair) {
    for (size_t length = 1; length < pair.first.size(); ++length) {
      if (text.ends_with(pair.first.substr(0, length))) return true;
    }
    return false;
  });
}

}  // namespace fsdp::data
