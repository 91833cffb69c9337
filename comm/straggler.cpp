// See [Note: who is late].
#include "comm/straggler.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include <fmt/format.h>

namespace fsdp::comm {
namespace {

constexpr size_t kFewestSteps = 5;
constexpr double kWorthAWord = 0.005;     // seconds
constexpr double kOfTheStep = 0.01;       // of the time that the collectives of the phase span
constexpr double kStandardErrors = 4;     // of a median
constexpr double kMostSteps = 0.75;       // in which the rank has to be the last
constexpr double kDeviationOfMad = 1.48;  // a normal distribution's standard deviation
constexpr double kErrorOfMedian = 1.25;   // its median's standard error, times the root of n

double seconds(int64_t ns) { return static_cast<double>(ns) / 1e9; }

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

struct Lateness {
  double late_s = 0;
  double span_s = 0;
};
// By rank and kind of phase, then by the phase of a step.
using Table = std::map<std::pair<int, std::string>, std::map<std::string, Lateness>>;

// One communicator, as all of its ranks saw it.
using Group = std::map<int, const RingSnapshot*>;  // by rank of the job

std::vector<Group> groups_of(const std::vector<RankRings>& ranks) {
  std::map<std::tuple<std::string, std::vector<int>, int>, Group> found;
  for (const RankRings& rank : ranks) {
    for (const RingSnapshot& ring : rank.rings) {
      found[{ring.name, ring.members, ring.ordinal}][rank.rank] = &ring;
    }
  }
  std::vector<Group> groups;
  for (const auto& [key, group] : found) {
    const size_t members = std::get<1>(key).size();
    if (members > 1 && group.size() == members) groups.push_back(group);
  }
  return groups;
}

void add_group(const Group& group, Table& table) {
  struct OfRank {
    int rank;
    const PhaseWait* wait;
  };
  std::map<std::string, std::vector<OfRank>> by_phase;
  for (const auto& [rank, ring] : group) {
    for (const PhaseWait& wait : ring->waits) by_phase[wait.phase.whole].push_back({rank, &wait});
  }
  for (auto& [phase, waits] : by_phase) {
    if (waits.size() != group.size()) continue;  // some ranks have forgotten it
    const bool same = std::all_of(waits.begin(), waits.end(), [&](const OfRank& r) {
      return r.wait->calls == waits[0].wait->calls;
    });
    if (!same) continue;  // it is under way
    std::sort(waits.begin(), waits.end(),
              [](const OfRank& a, const OfRank& b) { return a.wait->wait_ns < b.wait->wait_ns; });
    for (size_t i = 0; i < waits.size(); ++i) {
      const PhaseWait& own = *waits[i].wait;
      const PhaseWait& least = *waits[i == 0 ? 1 : 0].wait;  // of the others
      Lateness& late = table[{waits[i].rank, own.phase.innermost}][phase];
      const double by = seconds(least.wait_ns - own.wait_ns);
      const bool first = late.span_s == 0;
      late.late_s = first ? by : std::max(late.late_s, by);
      late.span_s = std::max({late.span_s, seconds(own.end_ns - own.begin_ns), 1e-9});
    }
  }
}

}  // namespace

std::vector<Straggler> find_stragglers(const std::vector<RankRings>& ranks) {
  Table table;
  for (const Group& group : groups_of(ranks)) add_group(group, table);
  std::vector<Straggler> out;
  for (const auto& [key, steps] : table) {
    if (steps.size() < kFewestSteps) continue;
    std::vector<double> late, span, distance;
    for (const auto& [phase, each] : steps) {
      late.push_back(each.late_s);
      span.push_back(each.span_s);
    }
    const double typical = median(late);
    for (const double each : late) distance.push_back(std::abs(each - typical));
    const auto n = static_cast<double>(late.size());
    const double error = kErrorOfMedian * kDeviationOfMad * median(distance) / std::sqrt(n);
    const auto last = std::count_if(late.begin(), late.end(), [](double s) { return s > 0; });
    const double part = static_cast<double>(last) / n;
    const double least =
        std::max({kWorthAWord, kOfTheStep * median(span), kStandardErrors * error});
    if (typical < least || part < kMostSteps) continue;
    out.push_back({key.first, key.second, typical, static_cast<int64_t>(late.size()), part});
  }
  std::sort(out.begin(), out.end(),
            [](const Straggler& a, const Straggler& b) { return a.late_s > b.late_s; });
  return out;
}

std::string describe(const Straggler& s) {
  return fmt::format(
      "rank {} was waited for in {}: {:.1f} ms a step (median of {}, the last in {:.0f} %)", s.rank,
      s.phase, s.late_s * 1e3, s.steps, s.last_in * 100);
}

}  // namespace fsdp::comm
