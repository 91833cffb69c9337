// Contract: tools/config/key_values.h.
#include "tools/config/key_values.h"

#include "tools/config/options.h"

namespace fsdp::config {

std::vector<std::pair<std::string, std::string>> key_values(const TrainConfig& config) {
  TrainConfig copy = config;  // visitors take fields by reference
  std::vector<std::pair<std::string, std::string>> all;
  for (const Option& option : options(copy)) all.emplace_back(option.key, option.value.text());
  return all;
}

std::vector<std::string> keys_of_each_rank() {
  TrainConfig defaults;
  std::vector<std::string> own;
  for (const Option& option : options(defaults)) {
    if (option.about.of_rank) own.push_back(option.key);
  }
  return own;
}

}  // namespace fsdp::config
