// Contract: tools/doctor/table.h.
#include "tools/doctor/table.h"

#include <algorithm>
#include <array>
#include <functional>

#include <fmt/format.h>

namespace fsdp::tools::doctor {
namespace {

constexpr size_t kMostLines = 3;  // of one check and one fix

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

// Of many groups with one fix: the least and the most or, without numbers, the first.
Group merged(const std::vector<Group>& groups) {
  const auto [least, most] = std::ranges::minmax_element(
      groups, {}, [](const Group& group) { return group.check.number.value_or(0); });
  Group all = groups[0];
  all.check.value = least->check.number
                        ? fmt::format("{}: {} ... {}: {}", least->hosts[0], least->check.value,
                                      most->hosts[0], most->check.value)
                        : fmt::format("{}: {}, and {} other values", all.hosts[0], all.check.value,
                                      groups.size() - 1);
  for (size_t i = 1; i < groups.size(); ++i) {
    all.hosts.insert(all.hosts.end(), groups[i].hosts.begin(), groups[i].hosts.end());
  }
  return all;
}

// The worst first. What one line mends is few lines of the table.
std::vector<Group> shortened(std::vector<Group> groups) {
  std::vector<Group> out;
  while (!groups.empty()) {
    const auto rest = std::stable_partition(
        groups.begin(), groups.end(), [first = groups[0].check](const Group& group) {
          return group.check.state == first.state && group.check.fix == first.fix;
        });
    std::vector<Group> alike(groups.begin(), rest);
    groups.erase(groups.begin(), rest);
    if (alike.size() > kMostLines) alike = {merged(alike)};
    out.insert(out.end(), alike.begin(), alike.end());
  }
  std::ranges::stable_sort(out, std::greater(),
                           [](const Group& group) { return group.check.state; });
  return out;
}

std::vector<Group> groups_of(const std::vector<HostReport>& hosts, const std::string& name) {
  std::vector<Group> groups;
  for (const HostReport& host : hosts) {
    for (const Check& check : host.checks) {
      if (check.name != name) continue;
      const auto same =
          std::ranges::find_if(groups, [&](const Group& group) { return group.says(check); });
      if (same != groups.end()) {
        same->hosts.push_back(host.host);
      } else {
        groups.push_back({.check = check, .hosts = {host.host}});
      }
    }
  }
  return shortened(groups);
}

// In the order in which the hosts have them.
std::vector<std::string> names_of_checks(const std::vector<HostReport>& hosts) {
  std::vector<std::string> names;
  for (const HostReport& host : hosts) {
    for (const Check& check : host.checks) {
      if (std::ranges::find(names, check.name) == names.end()) names.push_back(check.name);
    }
  }
  return names;
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
  for (const std::string& name : names_of_checks(hosts)) {
    std::string shown = name;  // once
    for (const Group& group : groups_of(hosts, name)) {
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
