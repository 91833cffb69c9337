// Edit distance by the usual table. Contract: core/text/similar_names.h.
#include "core/text/similar_names.h"

#include <algorithm>

namespace fsdp {

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<int>> cost(a.size() + 1, std::vector<int>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) cost[i][0] = static_cast<int>(i);
  for (size_t j = 0; j <= b.size(); ++j) cost[0][j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const int change = cost[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  return cost[a.size()][b.size()];
}

std::string nearest_key(std::string_view key, const std::vector<std::string>& candidates) {
  const auto last_part = [](std::string_view dotted) {
    return dotted.substr(dotted.rfind('.') + 1);  // npos + 1 == 0: no dot, the whole
  };
  std::string best;
  int best_distance = 0;
  for (const std::string& candidate : candidates) {
    const int distance = std::min(edit_distance(key, candidate),
                                  1 + edit_distance(last_part(key), last_part(candidate)));
    if (best.empty() || distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

bool resembles(std::string_view given, std::string_view known) {
  return 3 * edit_distance(given, known) <= static_cast<int>(std::max(given.size(), known.size()));
}

}  // namespace fsdp
