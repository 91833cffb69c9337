// Rows of levels in which every two levels of different factors stand together at least once, where
// they may: most of what a full cross would find, for a fraction of its rows.
#pragma once

#include <array>
#include <set>
#include <vector>

namespace fsdp::test {

// `sizes`: number of levels of every factor. `allowed`: of a row in which -1 is not chosen yet.
// Greedy, always the same rows: each begins with a pair that no row has yet, and takes for every
// other factor the level that brings most new pairs.
template <size_t N, typename Allowed>
std::vector<std::array<int, N>> pairwise(const std::array<int, N>& sizes, const Allowed& allowed) {
  using Row = std::array<int, N>;
  using Pair = std::array<size_t, 4>;  // factor, level, factor, level
  const auto pair = [](size_t f, int a, size_t g, int b) {
    return Pair{f, static_cast<size_t>(a), g, static_cast<size_t>(b)};
  };
  const auto chosen = [&](const std::vector<std::pair<size_t, int>>& levels) {
    Row row;
    row.fill(-1);
    for (const auto& [f, level] : levels) row[f] = level;
    return row;
  };
  std::set<Pair> missing;
  for (size_t f = 0; f < N; ++f) {
    for (size_t g = f + 1; g < N; ++g) {
      for (int a = 0; a < sizes[f]; ++a) {
        for (int b = 0; b < sizes[g]; ++b) {
          if (allowed(chosen({{f, a}, {g, b}}))) missing.insert(pair(f, a, g, b));
        }
      }
    }
  }
  std::vector<Row> rows;
  while (!missing.empty()) {
    const Pair first = *missing.begin();
    Row row =
        chosen({{first[0], static_cast<int>(first[1])}, {first[2], static_cast<int>(first[3])}});
    for (size_t f = 0; f < N; ++f) {
      if (row[f] >= 0) continue;
      int best = -1;
      long most = -1;
      for (int turn = 0; turn < sizes[f]; ++turn) {
        Row with = row;
        with[f] = (turn + static_cast<int>(rows.size())) % sizes[f];  // ties: not always the first
        if (!allowed(with)) continue;
        long brings = 0;
        for (size_t g = 0; g < N; ++g) {
          if (g == f || row[g] < 0) continue;
          brings += static_cast<long>(
              missing.count(f < g ? pair(f, with[f], g, row[g]) : pair(g, row[g], f, with[f])));
        }
        if (brings > most) most = brings, best = with[f];
      }
      row[f] = best;
    }
    for (size_t f = 0; f < N; ++f) {
      for (size_t g = f + 1; g < N; ++g) missing.erase(pair(f, row[f], g, row[g]));
    }
    rows.push_back(row);
  }
  return rows;
}

}  // namespace fsdp::test
