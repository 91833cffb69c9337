// Contract: models/ignored_keys.h.
#include "models/ignored_keys.h"

#include "models/family.h"

namespace fsdp::models {

const Json& ignored_keys_json();  // ignored_keys.json

bool is_ignored_in_config(const Family& family, std::string_view key) {
  const Json* const own = data_of(family).find("ignored");
  return is_listed(ignored_keys_json()["config"], key) || (own && is_listed(*own, key));
}

bool is_ignored_in_adapter(std::string_view key) {
  return is_listed(ignored_keys_json()["adapter"], key);
}

bool is_ignored_in_generation(std::string_view key) {
  return is_listed(ignored_keys_json()["generation"], key) ||
         is_listed(ignored_keys_json()["chooses_tokens"], key);
}

bool chooses_tokens(std::string_view key, const Json& value) {
  const std::string* const off = list_with(ignored_keys_json()["chooses_tokens"], key);
  const bool nothing =
      value.is_null() || value == false || (value.is_structured() && value.empty());
  if (!off || nothing) return false;
  return !value.is_number() || *off == "never" || value.get<double>() != std::stod(*off);
}

}  // namespace fsdp::models
