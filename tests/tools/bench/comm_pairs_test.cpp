// Who meets whom, which pair counts as slow, and pairs of ranks as threads.
// Requirements: S1.20.
#include "tools/bench/comm_pairs.h"

#include <algorithm>
#include <set>

#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

// Ranks 0, 1, ... on these hosts.
PairTable table_of(const std::vector<std::string>& hosts,
                   const std::vector<std::vector<double>>& gb_per_s) {
  PairTable table;
  for (size_t i = 0; i < hosts.size(); ++i) {
    table.sides.push_back({{static_cast<int>(i)}, hosts[i]});
    for (size_t j = 0; j < i; ++j) {
      table.pairs.push_back({.first = j,
                             .second = i,
                             .same_host = hosts[i] == hosts[j],
                             .busbw = 1e9 * gb_per_s[i][j],
                             .slow = {}});
    }
  }
  return table;
}

}  // namespace

TEST_CASE("comm pairs: each meets each once, in rounds of disjoint pairs") {
  CHECK(tournament(0).empty());
  CHECK(tournament(1).front().empty());
  for (size_t n = 2; n <= 17; ++n) {
    CAPTURE(n);
    const auto rounds = tournament(n);
    CHECK(rounds.size() == (n % 2 == 0 ? n - 1 : n));
    std::set<Meeting> met;
    for (const auto& round : rounds) {
      CHECK(round.size() == n / 2);
      std::set<size_t> busy;
      for (const auto& [first, second] : round) {
        CHECK(first < second);
        CHECK(second < n);
        CHECK(busy.insert(first).second);
        CHECK(busy.insert(second).second);
        CHECK(met.insert({first, second}).second);
      }
    }
    CHECK(met.size() == n * (n - 1) / 2);
  }
}

TEST_CASE("comm pairs: slow is below the bar, or far below the median of its kind") {
  // Pairs of a host reach 40, those between hosts 10: that is no fault of the latter.
  PairTable table =
      table_of({"a", "a", "b", "b", "c"}, {{}, {40}, {10, 10}, {10, 10, 40}, {10, 9, 3, 10}});
  judge(table, 0);
  CHECK(table.pairs.front().slow == "far below the median of 10 GB/s");
  CHECK(describe(table, table.pairs.front()) == "ranks 2 (b) and 4 (c)");
  CHECK(std::count_if(table.pairs.begin(), table.pairs.end(),
                      [](const auto& pair) { return pair.slow != ""; }) == 1);
  CHECK(check_pairs({table}).status == 46);
  CHECK(check_pairs({table}).reason == "slow pairs, 1 of 10: ranks 2 (b) and 4 (c): 3 GB/s");
  judge(table, 9.5e9);
  CHECK(slow_pairs_text({table}) ==
        "slow pairs, 2 of 10: ranks 2 (b) and 4 (c): 3 GB/s; ranks 1 (a) and 4 (c): 9 GB/s; rank 4 "
        "(c) is in all of them");
  judge(table, 3e9);
  table.pairs.front().slow.clear();
  CHECK(slow_pairs_text({table}) == "");
  CHECK(check_pairs({table}).status == 0);
}

TEST_CASE("comm pairs: wrong data is nothing valid; of many slow pairs eight are named") {
  PairTable table = table_of({"a", "b", "c", "d", "e"}, {{}, {1}, {1, 1}, {1, 1, 1}, {1, 1, 1, 1}});
  judge(table, 2e9);
  const std::string text = slow_pairs_text({table});
  CHECK(text.starts_with("slow pairs, 10 of 10: "));
  CHECK(text.ends_with("; and 2 more"));
  table.pairs[3].wrong = 12;
  judge(table, 0);
  const GateVerdict wrong = check_pairs({table});
  CHECK(wrong.status == 44);
  CHECK(wrong.reason == describe(table, table.pairs[3]) + ": 12 elements are wrong");
}

TEST_CASE("comm pairs: the slow hosts are named, and the slow ranks with them") {
  PairTable hosts = {.sides = {{{0, 1}, "a"}, {{2, 3}, "b"}, {{4}, "c"}}, .pairs = {}};
  hosts.pairs = {{.first = 0, .second = 1, .busbw = 9e9, .slow = {}},
                 {.first = 0, .second = 2, .busbw = 1e9, .slow = {}},
                 {.first = 1, .second = 2, .busbw = 9e9, .slow = {}}};
  judge(hosts, 0);
  CHECK(slow_pairs_text({hosts}) ==
        "slow pairs, 1 of 3: hosts a (ranks 0, 1) and c (rank 4): 1 GB/s");
  PairTable ranks = table_of({"a", "a", "c"}, {{}, {5}, {1, 5}});
  CHECK(slow_pairs_text({hosts, ranks}) == slow_pairs_text({hosts}));
  judge(ranks, 2e9);
  CHECK(slow_pairs_text({hosts, ranks}) ==
        slow_pairs_text({hosts}) + "; slow pairs, 1 of 3: ranks 0 (a) and 2 (c): 1 GB/s");
}

TEST_CASE("comm pairs: every pair of real ranks, with right data, the same on every rank") {
  const CommCase what = {.bytes = 3000};
  comm::run_local_ranks(5, [&](comm::Communicator& world) {
    cpu::CpuBackend backend;
    const CommTiming once = {.rounds = 1, .calls = 1};
    const auto sizes = [&](const std::vector<std::string>& at, double least, bool always_ranks) {
      const auto tables = bench_pairs(world, backend, what, once, at, least, always_ranks);
      std::vector<size_t> pairs;
      for (const PairTable& table : tables) {
        pairs.push_back(table.pairs.size());
        for (const PairResult& pair : table.pairs) {
          CHECK(pair.busbw > 0);
          CHECK(pair.wrong == 0);
          // What all ranks reach is no bar for two ranks of hosts with more.
          CHECK((pair.slow == "below 1e+09 GB/s") == (least > 0 && &table == &tables[0]));
        }
      }
      const std::string mine = slow_pairs_text(tables);
      for (const std::string& other : world.exchange(mine)) CHECK(other == mine);
      return pairs;
    };
    using Sizes = std::vector<size_t>;
    constexpr double kNobody = 1e18;                                // reaches this bar
    CHECK(sizes({"a", "a", "b", "b", "a"}, 0, false) == Sizes{1});  // the hosts are well
    CHECK(sizes({"a", "a", "b", "b", "a"}, 0, true) == Sizes{1, 10});
    CHECK(sizes({"a", "a", "b", "b", "a"}, kNobody, false) == Sizes{1, 10});
    // One host, or one rank on each: only pairs of ranks.
    CHECK(sizes({"a", "a", "a", "a", "a"}, 0, false) == Sizes{10});
    CHECK(sizes({"a", "b", "c", "d", "e"}, kNobody, false) == Sizes{10});
  });
}

TEST_CASE("comm pairs: of several slow hosts only the ranks of the slowest two meet") {
  comm::run_local_ranks(5, [&](comm::Communicator& world) {
    cpu::CpuBackend backend;
    const auto tables = bench_pairs(world, backend, {.bytes = 3000}, {.rounds = 1, .calls = 1},
                                    {"a", "b", "b", "c", "d"}, 1e18, false);
    REQUIRE(tables.size() == 2);
    CHECK(tables[0].pairs.size() == 6);
    const PairResult& slowest = tables[0].pairs[0];
    size_t ranks = 0;
    for (const size_t side : {slowest.first, slowest.second}) {
      ranks += tables[0].sides[side].ranks.size();
    }
    CHECK(tables[1].sides.size() == ranks);
    for (const PairSide& side : tables[1].sides) {
      const bool is_of_them = side.host == tables[0].sides[slowest.first].host ||
                              side.host == tables[0].sides[slowest.second].host;
      CHECK(is_of_them);
    }
  });
}

}  // namespace fsdp::tools
