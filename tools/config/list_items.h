// The elements of a list of YAML, each as --set takes it. For values that are given on the command
// line and are not a key's value themselves.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace fsdp::config {

// "[1e-4, [a, b]]" has "1e-4" and "[a, b]". Nullopt: it is no list, or an empty one.
std::optional<std::vector<std::string>> list_items(const std::string& yaml);

}  // namespace fsdp::config
