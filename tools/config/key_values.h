// The configuration as a flat list, to compare two of them. Not here: the file's form (to_yaml).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tools/config/config.h"

namespace fsdp::config {

// Every field by its dotted key, in the order of the file; the value as in the file.
std::vector<std::pair<std::string, std::string>> key_values(const TrainConfig& config);

// Whether the key says which model it is: model.path, model.preset, or a size.
bool says_which_model(const std::string& key);

// The keys in which ranks may differ.
std::vector<std::string> keys_of_each_rank();

}  // namespace fsdp::config
