// Contract: tools/data/tokenizer/pattern.h.
#include "tools/data/tokenizer/pattern.h"

#include "tools/data/tokenizer/json_node.h"

namespace fsdp::data {

Pattern::Pattern(const JsonNode& node) {
  node.check_keys({"String", "Regex"});
  if (node.has("String")) {
    literal_ = node.text("String");
    return;
  }
  const JsonNode regex = node.at("Regex");
  try {
    regex_.emplace(regex.text());
  } catch (const Error& error) {
    regex.fail("{}", error.what());
  }
}

bool Pattern::find(std::string_view text, size_t from, Span& match) const {
  if (regex_) return regex_->find(text, from, match);
  match.begin = literal_.empty() ? text.npos : text.find(literal_, from);
  match.end = match.begin + literal_.size();
  return match.begin != text.npos;
}

}  // namespace fsdp::data
