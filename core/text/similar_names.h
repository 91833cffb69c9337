// The known name that a mistyped one probably meant.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fsdp {

// Insertions, deletions, substitutions and swaps of neighbours that turn a into b.
int edit_distance(std::string_view a, std::string_view b);

// The candidate at the smallest distance, the first of equals; "" without candidates. For dotted
// keys the last part alone counts as well, so that a key in the wrong section is found.
std::string nearest_key(std::string_view key, const std::vector<std::string>& candidates);

// Whether `known` is near enough to `given` to be what was meant: two thirds of it are right.
bool resembles(std::string_view given, std::string_view known);

}  // namespace fsdp
