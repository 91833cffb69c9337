// What ConfigKeys does not do in its header.
#include "core/io/config_keys.h"

#include <algorithm>

namespace fsdp {

int64_t ConfigKeys::either(const char* key, const char* other_key, int64_t absent) const {
  const int64_t other = extent(other_key, extent(key, absent)), value = extent(key, other);
  FSDP_CHECK(value == other, "{}: {}: {}, but {} says {}", where_, key, value, other_key, other);
  return value;
}

std::vector<int64_t> ConfigKeys::tokens(const char* key, const char* what) const {
  if (!has(key)) return {};
  const Json& value = object_.at(key);
  std::vector<int64_t> ids;
  for (const Json& id : value.is_array() ? value : Json::array({value})) {
    FSDP_CHECK(is_integer(id), "{}: {}: expected {} of at most 32 bits, one or a list, got {}",
               where_, key, what, value.dump());
    ids.push_back(id.get<int64_t>());
  }
  return ids;
}

int64_t ConfigKeys::token(const char* key, int64_t absent) const {
  if (this->absent(key)) return absent;
  const std::vector<int64_t> ids = tokens(key);
  return ids.empty() ? -1 : ids.front();
}

std::vector<std::string> ConfigKeys::strings(const char* key) const {
  std::vector<std::string> out;
  if (!has(key)) return out;
  const Json& list = object_.at(key);
  FSDP_CHECK(list.is_array(), "{}: {}: expected a list, got {}", where_, key, list.dump());
  for (const Json& item : list) {
    FSDP_CHECK(item.is_string(), "{}: {}: expected strings, got {}", where_, key, item.dump());
    out.push_back(item.get<std::string>());
  }
  return out;
}

std::vector<std::string> ConfigKeys::unasked() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object_.items()) {
    if (!asked_->contains(key)) keys.push_back(key);
  }
  for (const auto& [outer, asked] : opened_) {
    for (const auto& [key, value] : object_.at(outer).items()) {
      if (!asked->contains(key)) keys.push_back(outer + "." + key);
    }
  }
  return keys;
}

void ConfigKeys::refuse_objects() const {
  for (const auto& [key, value] : object_.items()) {
    FSDP_CHECK(!value.is_object(), "{}: {}: values by layer type are not supported by this build",
               where_, key);
  }
}

void ConfigKeys::refuse_unless(bool supported, const char* key, const char* meaning) const {
  FSDP_CHECK(supported, "{}: {}: {} is not supported by this build", where_, key, meaning);
}

const std::string* list_with(const Json& lists, std::string_view key) {
  for (const auto& [name, keys] : lists.items()) {
    if (std::find(keys.begin(), keys.end(), Json(key)) != keys.end()) return &name;
  }
  return nullptr;
}

}  // namespace fsdp
