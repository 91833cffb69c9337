// The tournament, and what is said of its results.
#include "tools/bench/comm_pairs.h"

#include <algorithm>
#include <map>
#include <optional>

#include <fmt/ranges.h>

#include "comm/exchange.h"
#include "tools/bench/statistics.h"

namespace fsdp::tools {
namespace {

constexpr size_t kMostNamed = 8;

class PairBench {
 public:
  PairBench(comm::Communicator& world, Backend& backend, const CommCase& what,
            const CommTiming& timing)
      : world_(world), backend_(backend), what_(what), timing_(timing) {}

  PairTable run(std::vector<PairSide> sides, double least) {
    PairTable table = {.sides = std::move(sides), .pairs = {}};
    for (const std::vector<Meeting>& round : tournament(table.sides.size())) {
      for (PairResult& result : play(table.sides, round)) table.pairs.push_back(std::move(result));
    }
    judge(table, least);
    for (int tries = 2; tries <= kGateTries; ++tries) {
      run_slow_alone(table);
      judge(table, least);
    }
    return table;
  }

 private:
  void run_slow_alone(PairTable& table) {
    size_t runs = 0;
    for (PairResult& pair : table.pairs) {
      if (pair.slow.empty() || ++runs > kPairsAgain) continue;
      const PairResult alone = play(table.sides, {{pair.first, pair.second}}).front();
      pair.busbw = std::max(pair.busbw, alone.busbw);
      pair.wrong = std::max(pair.wrong, alone.wrong);
    }
  }

  // All meetings at the same time; ranks that are in none wait.
  std::vector<PairResult> play(const std::vector<PairSide>& sides,
                               const std::vector<Meeting>& round) {
    const auto meetings = static_cast<int>(round.size());
    std::vector<int> colors;  // by rank; those that wait are alone
    for (int rank = 0; rank < world_.size(); ++rank) colors.push_back(meetings + rank);
    for (int color = 0; color < meetings; ++color) {
      const auto& [first, second] = round[static_cast<size_t>(color)];
      for (const size_t side : {first, second}) {
        for (const int rank : sides[side].ranks) colors[static_cast<size_t>(rank)] = color;
      }
    }
    const auto place_of = [&](int rank) {
      return comm::SplitPlace{.color = colors[static_cast<size_t>(rank)], .key = rank};
    };
    const auto group = world_.split(place_of, "pair");
    struct Played {
      int64_t wrong = 0;
      double busbw = 0;
    } mine;
    if (place_of(world_.rank()).color < meetings) {
      const CommResult result = bench_collective(*group, backend_, what_, timing_);
      mine = {result.wrong, result.busbw()};
    }
    const std::vector<Played> played = comm::exchange_values(world_, mine);
    std::vector<PairResult> results;
    for (const auto& [first, second] : round) {
      // All ranks of a pair say the same.
      const Played& pair = played[static_cast<size_t>(sides[first].ranks[0])];
      results.push_back({.first = first,
                         .second = second,
                         .same_host = sides[first].host == sides[second].host,
                         .busbw = pair.busbw,
                         .wrong = pair.wrong,
                         .slow = {}});
    }
    return results;
  }

  comm::Communicator& world_;
  Backend& backend_;
  CommCase what_;
  CommTiming timing_;
};

std::vector<PairSide> sides_of_hosts(const std::vector<std::string>& hosts) {
  std::vector<PairSide> sides;
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    const auto known = std::find_if(sides.begin(), sides.end(),
                                    [&](const auto& side) { return side.host == hosts[rank]; });
    PairSide& side = known == sides.end() ? sides.emplace_back() : *known;
    side.host = hosts[rank];
    side.ranks.push_back(static_cast<int>(rank));
  }
  return sides;
}

std::vector<const PairResult*> slow_pairs(const PairTable& table) {
  std::vector<const PairResult*> slow;
  for (const PairResult& pair : table.pairs) {
    if (!pair.slow.empty()) slow.push_back(&pair);
  }
  return slow;
}

std::vector<PairSide> each_rank(const std::vector<PairSide>& hosts) {
  std::vector<PairSide> sides;
  for (const PairSide& host : hosts) {
    for (const int rank : host.ranks) sides.push_back({{rank}, host.host});
  }
  return sides;
}

bool of_hosts(const PairTable& table) {
  return std::any_of(table.sides.begin(), table.sides.end(),
                     [](const PairSide& side) { return side.ranks.size() > 1; });
}

std::string name_of_side(const PairTable& table, size_t index) {
  const PairSide& side = table.sides[index];
  if (!of_hosts(table)) return fmt::format("{} ({})", side.ranks[0], side.host);
  return fmt::format("{} (rank{} {})", side.host, side.ranks.size() == 1 ? "" : "s",
                     fmt::join(side.ranks, ", "));
}

// The side that is in every one of these pairs, of which there are several.
std::optional<size_t> common_side(const std::vector<const PairResult*>& pairs) {
  if (pairs.size() < 2) return std::nullopt;
  for (const size_t side : {pairs[0]->first, pairs[0]->second}) {
    if (std::all_of(pairs.begin(), pairs.end(), [&](const PairResult* pair) {
          return pair->first == side || pair->second == side;
        })) {
      return side;
    }
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::vector<Meeting>> tournament(size_t n) {
  // The circle method: one stays, the others move on by a place after each round.
  const size_t seats = n + n % 2;
  std::vector<size_t> circle;
  for (size_t i = 0; i < seats; ++i) circle.push_back(i);
  std::vector<std::vector<Meeting>> rounds;
  for (size_t round = 1; round < seats; ++round) {
    std::vector<Meeting>& meetings = rounds.emplace_back();
    for (size_t i = 0; i < seats / 2; ++i) {
      const auto [low, high] = std::minmax(circle[i], circle[seats - 1 - i]);
      if (high < n) meetings.emplace_back(low, high);
    }
    std::rotate(circle.begin() + 1, circle.end() - 1, circle.end());
  }
  return rounds;
}

void judge(PairTable& table, double least) {
  std::map<bool, std::vector<double>> of_kind;
  for (const PairResult& pair : table.pairs) of_kind[pair.same_host].push_back(pair.busbw);
  for (PairResult& pair : table.pairs) {
    const double median = quantile(of_kind[pair.same_host], 0.5);
    pair.slow.clear();
    if (pair.wrong > 0) {
      pair.slow = fmt::format("{} elements are wrong", pair.wrong);
    } else if (pair.busbw < least) {
      pair.slow = fmt::format("below {:.4g} GB/s", least * 1e-9);
    } else if (pair.busbw < kFarBelowMedian * median) {
      pair.slow = fmt::format("far below the median of {:.4g} GB/s", median * 1e-9);
    }
  }
  std::stable_sort(table.pairs.begin(), table.pairs.end(),
                   [](const auto& a, const auto& b) { return a.busbw < b.busbw; });
}

std::vector<PairTable> bench_pairs(comm::Communicator& world, Backend& backend,
                                   const CommCase& what, const CommTiming& timing,
                                   const std::vector<std::string>& hosts, double least,
                                   bool always_ranks) {
  PairBench bench(world, backend, what, timing);
  const std::vector<PairSide> sides = sides_of_hosts(hosts);
  if (sides.size() == 1 || sides.size() == hosts.size()) {
    return {bench.run(each_rank(sides), least)};
  }
  std::vector<PairTable> tables = {bench.run(sides, least)};
  const std::vector<const PairResult*> slow = slow_pairs(tables[0]);
  if (!slow.empty()) {
    tables.push_back(bench.run(each_rank({sides[slow[0]->first], sides[slow[0]->second]}), 0));
  } else if (always_ranks) {
    tables.push_back(bench.run(each_rank(sides), 0));
  }
  return tables;
}

std::string describe(const PairTable& table, const PairResult& pair) {
  return fmt::format("{} {} and {}", of_hosts(table) ? "hosts" : "ranks",
                     name_of_side(table, pair.first), name_of_side(table, pair.second));
}

std::string slow_pairs_text(const std::vector<PairTable>& tables) {
  std::vector<std::string> texts;
  for (const PairTable& table : tables) {
    const std::vector<const PairResult*> slow = slow_pairs(table);
    if (slow.empty()) continue;
    std::vector<std::string> named;
    for (const PairResult* pair : slow) {
      if (named.size() == kMostNamed) break;
      named.push_back(fmt::format("{}: {:.4g} GB/s", describe(table, *pair), pair->busbw * 1e-9));
    }
    std::string& text = texts.emplace_back(fmt::format("slow pairs, {} of {}: {}", slow.size(),
                                                       table.pairs.size(), fmt::join(named, "; ")));
    if (const size_t more = slow.size() - named.size(); more > 0) {
      text += fmt::format("; and {} more", more);
    }
    if (const auto common = common_side(slow)) {
      text += fmt::format("; {} {} is in all of them", of_hosts(table) ? "host" : "rank",
                          name_of_side(table, *common));
    }
  }
  return fmt::to_string(fmt::join(texts, "; "));
}

GateVerdict check_pairs(const std::vector<PairTable>& tables) {
  for (const PairTable& table : tables) {
    for (const PairResult& pair : table.pairs) {
      if (pair.wrong > 0) {
        return {kNothingValid, fmt::format("{}: {}", describe(table, pair), pair.slow)};
      }
    }
  }
  const std::string slow = slow_pairs_text(tables);
  if (!slow.empty()) return {kTooSlow, slow};
  return {};
}

}  // namespace fsdp::tools
