// Contract: core/text/listed.h.
#include "core/text/listed.h"

#include <algorithm>

#include <fmt/format.h>

namespace fsdp {

std::string listed(const std::vector<std::string>& items, std::string_view kind) {
  const std::string begin = kind.empty() ? "\n  " : fmt::format("\n  {}: ", kind);
  const size_t shown = std::min(items.size(), kMostListed);
  std::string out;
  for (size_t i = 0; i < shown; ++i) out += begin + items[i];
  if (items.size() > shown) out += fmt::format("{}{} more", begin, items.size() - shown);
  return out;
}

}  // namespace fsdp
