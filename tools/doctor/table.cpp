// Contract: tools/doctor/table.h.
#include "tools/doctor/table.h"

#include <algorithm>
#include <array>
#include <functional>

#include <fmt/format.h>

namespace fsdp::tools::doctor {
namespace {

constexpr size_t kMostGroups = 3;  // of one check and state

const char* sign_of(State state) {
  return state == State::kOk ? "✓" : state == State::kWarn ? "!" : "✗";
}

// Hosts of which the same is said.
struct Group {
  Check check;
  std::vector<std::string> hosts;

  bool says(const Check& other) const {
    return check.value == other.value && check.state == other.state && check.fix == other.fix;
  }
};

// The worst first; of each state kMostGroups, and the others as one.
std::vector<Group> shortened(std::vector<Group> groups) {
  std::ranges::stable_sort(groups, std::greater(),
                           [](const Group& group) { return group.check.state; });
  std::vector<Group> out;
  size_t of_state = 0;
  for (const Group& group : groups) {
    of_state = out.empty() || out.back().check.state != group.check.state ? 1 : of_state + 1;
    if (of_state <= kMostGroups + 1) {
      out.push_back(group);
      continue;
    }
    out.back().hosts.insert(out.back().hosts.end(), group.hosts.begin(), group.hosts.end());
    out.back().check.value = fmt::format("{} more values", of_state - kMostGroups);
  }
  return out;
}

// Of each check, in the order in which the hosts have them.
std::vector<std::vector<Group>> groups_of(const std::vector<HostReport>& hosts) {
  std::vector<std::vector<Group>> rows;
  for (const HostReport& host : hosts) {
    for (const Check& check : host.checks) {
      const auto row = std::ranges::find_if(
          rows, [&](const std::vector<Group>& its) { return its[0].check.name == check.name; });
      std::vector<Group>& groups = row == rows.end() ? rows.emplace_back() : *row;
      const auto same =
          std::ranges::find_if(groups, [&](const Group& group) { return group.says(check); });
      Group& group = same == groups.end() ? groups.emplace_back(Group{check, {}}) : *same;
      group.hosts.push_back(host.host);
    }
  }
  std::ranges::transform(rows, rows.begin(), shortened);
  return rows;
}

std::string counts(const std::vector<HostReport>& hosts) {
  std::array<int, 3> of_state{};
  for (const HostReport& host : hosts) {
    for (const Check& check : host.checks) ++of_state[static_cast<size_t>(check.state)];
  }
  return fmt::format("{} host{}: {} ✓  {} !  {} ✗\n", hosts.size(), hosts.size() == 1 ? "" : "s",
                     of_state[0], of_state[1], of_state[2]);
}

}  // namespace

std::string table(const std::vector<HostReport>& hosts) {
  std::string lines, mending;
  for (const std::vector<Group>& groups : groups_of(hosts)) {
    const std::string name = groups[0].check.name;
    std::string shown = name;  // once
    for (const Group& group : groups) {
      const Check& check = group.check;
      const bool all = group.hosts.size() == hosts.size();
      const std::string where = all ? "" : few_of(group.hosts) + ": ";
      lines += fmt::format("{} {:<14} {}{}\n", sign_of(check.state), shown, where, check.value);
      shown.clear();
      if (check.state == State::kOk) continue;
      const std::string on = hosts.size() == 1 ? "" : " on " + few_of(group.hosts);
      mending += fmt::format("{} {}{}: {}\n    {}\n", sign_of(check.state), name, on, check.value,
                             check.fix);
    }
  }
  return lines + (mending.empty() ? "" : "\n") + mending + "\n" + counts(hosts);
}

}  // namespace fsdp::tools::doctor
