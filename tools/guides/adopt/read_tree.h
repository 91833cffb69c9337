// A YAML or JSON file as a flat list of values with dotted keys. JSON is read as YAML, which it is,
// so that every value has its line.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tools/guides/adopt/given.h"

namespace fsdp::adopt {

// In the order of the file. The items of a list of sections have keys with their number,
// "datasets[0].path", and names without one. A value of null is left out: it means the default.
// Error for a file that has no keys, or a key twice.
std::vector<Given> read_tree(const std::filesystem::path& file);
// The same, for programs whose JSON may have comments, and commas behind the last value.
std::vector<Given> read_lenient_tree(const std::filesystem::path& file);
std::vector<Given> parse_tree(const std::string& text, const std::string& source);

}  // namespace fsdp::adopt
