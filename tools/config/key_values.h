// The configuration as a flat list, to compare two of them. Not here: the file's form (to_yaml).
#pragma once

#include <optional>
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

// The elements of a list of YAML, each as --set takes it, for values that are given on the command
// line and are not a key's value themselves: "[1e-4, [a, b]]" has "1e-4" and "[a, b]". Nullopt: the
// text is no list, or an empty one.
std::optional<std::vector<std::string>> list_items(const std::string& yaml);

// A path that begins with ~, where no shell has replaced it (in a YAML file, behind --set KEY= or
// --option=): "~/texts" -> "/home/ada/texts" by the environment's HOME. Another user's,
// "~bob/texts", and every other text stay as they are.
std::string with_home(const std::string& path);

}  // namespace fsdp::config
