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

// A rank, or the ranks of a host.
struct Party {
  int first = 0;                      // of its ranks
  int64_t least_ns = 0, most_ns = 0;  // that they waited
  double span_s = 0;
};

// Of one phase; empty: it is under way.
std::vector<Party> parties_of(const std::vector<std::pair<int, const PhaseWait*>>& waits) {
  std::vector<Party> out;
  for (const auto& [party, wait] : waits) {
    if (wait->calls != waits[0].second->calls) return {};
    const auto found =
        std::find_if(out.begin(), out.end(), [&](const Party& p) { return p.first == party; });
    const double span = seconds(wait->end_ns - wait->begin_ns);
    if (found == out.end()) {
      out.push_back({party, wait->wait_ns, wait->wait_ns, span});
      continue;
    }
    found->least_ns = std::min(found->least_ns, wait->wait_ns);
    found->most_ns = std::max(found->most_ns, wait->wait_ns);
    found->span_s = std::max(found->span_s, span);
  }
  return out;
}

void add_group(const Group& group, const std::vector<int>& host_of, Table& table) {
  std::map<std::string, std::vector<std::pair<int, const PhaseWait*>>> by_phase;
  for (const auto& [rank, ring] : group) {
    const int party = host_of.empty() ? rank : host_of[static_cast<size_t>(rank)];
    for (const PhaseWait& wait : ring->waits) {
      by_phase[wait.phase.whole].emplace_back(party, &wait);
    }
  }
  for (const auto& [phase, waits] : by_phase) {
    if (waits.size() != group.size()) continue;  // some ranks have forgotten it
    std::vector<Party> parties = parties_of(waits);
    if (parties.size() < 2) continue;
    std::sort(parties.begin(), parties.end(),
              [](const Party& a, const Party& b) { return a.least_ns < b.least_ns; });
    for (size_t i = 0; i < parties.size(); ++i) {
      const Party& own = parties[i];
      const Party& least = parties[i == 0 ? 1 : 0];  // of the others
      Lateness& late = table[{own.first, waits[0].second->phase.innermost}][phase];
      const double by = seconds(least.least_ns - own.most_ns);
      const bool first = late.span_s == 0;
      late.late_s = first ? by : std::max(late.late_s, by);
      late.span_s = std::max({late.span_s, own.span_s, 1e-9});
    }
  }
}

}  // namespace

std::vector<Straggler> find_stragglers(const std::vector<RankRings>& ranks,
                                       const std::vector<int>& host_of) {
  Table table;
  for (const Group& group : groups_of(ranks)) add_group(group, host_of, table);
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

std::string describe(const Straggler& s, const std::string& who) {
  return fmt::format(
      "{} was waited for in {}: {:.1f} ms a step (median of {}, the last in {:.0f} %)",
      who.empty() ? fmt::format("rank {}", s.rank) : who, s.phase, s.late_s * 1e3, s.steps,
      s.last_in * 100);
}

}  // namespace fsdp::comm
