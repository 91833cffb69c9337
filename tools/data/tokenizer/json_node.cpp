// Typed reading of one place. Contract: tools/data/tokenizer/json_node.h.
#include "tools/data/tokenizer/json_node.h"

#include <algorithm>

#include "core/io/config_keys.h"

namespace fsdp::data {

const Json& ignored_keys_json();  // ignored_keys.json

bool JsonNode::has(std::string_view key) const {
  expect(value_->is_object(), "an object");
  const Json* found = value_->find(key);
  return found && !found->is_null();
}

JsonNode JsonNode::at(std::string_view key) const {
  expect(value_->is_object(), "an object");
  const Json* found = value_->find(key);
  if (!found) fail("no key \"{}\"", key);
  JsonNode out = *this;
  out.value_ = found;
  out.path_ += fmt::format("{}{}", path_.empty() ? "" : ".", key);
  return out;
}

JsonNode JsonNode::item(size_t index) const {
  if (index >= size()) fail("expected more than {} items, got {}", index, size());
  JsonNode out = *this;
  out.value_ = &(*value_)[index];
  out.path_ += fmt::format("[{}]", index);
  return out;
}

size_t JsonNode::size() const {
  expect(value_->is_array(), "an array");
  return value_->size();
}

std::string JsonNode::text() const {
  expect(value_->is_string(), "a string");
  return value_->get<std::string>();
}

bool JsonNode::flag() const {
  expect(value_->is_boolean(), "true or false");
  return value_->get<bool>();
}

int64_t JsonNode::integer(int64_t low, int64_t high) const {
  const bool fits = value_->is_number_unsigned()
                        ? value_->get<uint64_t>() <= static_cast<uint64_t>(high)
                        : value_->is_number_integer();
  const int64_t number = fits ? value_->get<int64_t>() : low - 1;
  if (number < low || number > high) {
    fail("expected a whole number from {} to {}, got {}", low, high,
         value_->is_number() ? value_->dump() : value_->type_name());
  }
  return number;
}

void JsonNode::check_keys(std::initializer_list<std::string_view> known,
                          std::string_view component) const {
  expect(value_->is_object(), "an object");
  for (const auto& [key, unused] : value_->items()) {
    const bool is_known = std::find(known.begin(), known.end(), key) != known.end();
    if (!is_known && !is_ignored(component, key)) {
      fail("unknown key \"{}\"; expected {}", key, fmt::join(known, ", "));
    }
  }
}

bool is_ignored(std::string_view component, std::string_view key) {
  const Json* const lists = ignored_keys_json().find(component);
  return lists && is_listed(*lists, key);
}

void JsonNode::fail_unknown_type(std::string_view known) const {
  at("type").fail("unknown component \"{}\"; expected {}", text("type"), known);
}

}  // namespace fsdp::data
