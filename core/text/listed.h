// A list of what is wrong, for a message that people read to its end.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fsdp {

inline constexpr size_t kMostListed = 10;

// Each item on a line of its own behind `kind`, "\n  missing: a\n  missing: b"; of more than
// kMostListed the rest is a number, "\n  missing: 16 more". An empty kind is left out.
std::string listed(const std::vector<std::string>& items, std::string_view kind = "");

}  // namespace fsdp
