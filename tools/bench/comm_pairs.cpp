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
            const CommTiming& timing, double least)
      : world_(world), backend_(backend), what_(what), timing_(timing), least_(least) {}

  PairTable run(std::vector<PairSide> sides) {
    PairTable table = {.sides = std::move(sides), .pairs = {}};
    for (const std::vector<Meeting>& round : tournament(table.sides.size())) {
      for (PairResult& result : play(table.sides, round)) table.pairs.push_back(std::move(result));
    }
    judge(table, least_);
    for (int tries = 2; tries <= kGateTries; ++tries) {
      run_slow_alone(table);
      judge(table, least_);
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
    std::vector<int> colors;  // by rank; those that wait are alone
    const auto meetings = static_cast<int>(round.size());
    for (int rank = 0; rank < world_.size(); ++rank) colors.push_back(meetings + rank);
    std::vector<PairResult> results;
    for (const auto& [first, second] : round) {
      for (const size_t side : {first, second}) {
        for (const int rank : sides[side].ranks) {
          colors[static_cast<size_t>(rank)] = static_cast<int>(results.size());
        }
      }
      results.push_back(
          {.first = first, .second = second, .same_host = sides[first].host == sides[second].host});
    }
    struct Played {
      int64_t color = 0, wrong = 0;
      double busbw = 0;
    };
    Played mine = {.color = colors[static_cast<size_t>(world_.rank())]};
    const auto group = world_.split(
        [&](int rank) {
          return comm::SplitPlace{.color = colors[static_cast<size_t>(rank)], .key = rank};
        },
        "pair");
    if (mine.color < meetings) {
      const CommResult result = bench_collective(*group, backend_, what_, timing_);
      mine.wrong = result.wrong;
      mine.busbw = result.busbw();
    }
    for (const Played& each : comm::exchange_values(world_, mine)) {
      if (each.color >= meetings) continue;
      PairResult& result = results[static_cast<size_t>(each.color)];
      result.busbw = each.busbw;  // all ranks of the pair say the same
      result.wrong = each.wrong;
    }
    return results;
  }

  comm::Communicator& world_;
  Backend& backend_;
  CommCase what_;
  CommTiming timing_;
  double least_;
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

// The ranks of the hosts that are in a slow pair; of all hosts where there is none.
std::vector<PairSide> suspected_ranks(const std::vector<PairTable>& tables,
                                      const std::vector<std::string>& hosts) {
  std::vector<bool> suspected(hosts.size(), true);
  if (!tables.empty() && !slow_pairs(tables[0]).empty()) {
    suspected.assign(hosts.size(), false);
    for (const PairResult* pair : slow_pairs(tables[0])) {
      for (const size_t side : {pair->first, pair->second}) {
        for (const int rank : tables[0].sides[side].ranks) {
          suspected[static_cast<size_t>(rank)] = true;
        }
      }
    }
  }
  std::vector<PairSide> sides;
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    if (suspected[rank]) sides.push_back({{static_cast<int>(rank)}, hosts[rank]});
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
                                   const std::vector<std::string>& hosts, double least) {
  PairBench bench(world, backend, what, timing, least);
  std::vector<PairTable> tables;
  std::vector<PairSide> sides = sides_of_hosts(hosts);
  const bool several_each = sides.size() < hosts.size();
  if (sides.size() > 1 && several_each) tables.push_back(bench.run(std::move(sides)));
  tables.push_back(bench.run(suspected_ranks(tables, hosts)));
  return tables;
}

std::string describe(const PairTable& table, const PairResult& pair) {
  return fmt::format("{} {} and {}", of_hosts(table) ? "hosts" : "ranks",
                     name_of_side(table, pair.first), name_of_side(table, pair.second));
}

std::string slow_pairs_text(const std::vector<PairTable>& tables) {
  for (auto table = tables.rbegin(); table != tables.rend(); ++table) {
    const std::vector<const PairResult*> slow = slow_pairs(*table);
    if (slow.empty()) continue;
    std::vector<std::string> named;
    for (const PairResult* pair : slow) {
      if (named.size() == kMostNamed) break;
      named.push_back(fmt::format("{}: {:.4g} GB/s", describe(*table, *pair), pair->busbw * 1e-9));
    }
    std::string text = fmt::format("slow pairs, {} of {}: {}", slow.size(), table->pairs.size(),
                                   fmt::join(named, "; "));
    if (const size_t more = slow.size() - named.size(); more > 0) {
      text += fmt::format("; and {} more", more);
    }
    const auto common = common_side(slow);
    if (common) {
      text += fmt::format("; {} {} is in all of them", of_hosts(*table) ? "host" : "rank",
                          name_of_side(*table, *common));
    }
    return text;
  }
  return "";
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
