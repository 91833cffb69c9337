// Checks as texts, as JSON and as a table. Contract: tools/doctor/check.h.
#include "tools/doctor/check.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>

#include <fmt/ranges.h>

#include "core/error.h"

namespace fsdp::tools::doctor {
namespace {

constexpr size_t kTexts = 5;      // of a check
constexpr size_t kMostNamed = 4;  // hosts

}  // namespace

std::string_view name_of(State state) {
  return state == State::kOk ? "ok" : state == State::kWarn ? "warn" : "fail";
}

Check* HostReport::find(std::string_view name) {
  const auto found = std::ranges::find(checks, name, &Check::name);
  return found == checks.end() ? nullptr : &*found;
}

std::string few_of(const std::vector<std::string>& hosts) {
  const size_t shown = std::min(hosts.size(), kMostNamed);
  const std::vector<std::string> first(hosts.begin(), hosts.begin() + static_cast<long>(shown));
  const size_t more = hosts.size() - shown;
  return fmt::format("{}{}", fmt::join(first, ", "),
                     more > 0 ? fmt::format(" and {} more", more) : "");
}

bool any_failed(const std::vector<HostReport>& hosts) {
  return std::ranges::any_of(hosts, [](const HostReport& host) {
    return std::ranges::find(host.checks, State::kFail, &Check::state) != host.checks.end();
  });
}

std::vector<std::string> to_texts(const std::vector<Check>& checks) {
  std::vector<std::string> texts;
  for (const Check& check : checks) {
    texts.push_back(check.name);
    texts.push_back(check.value);
    texts.push_back(fmt::format("{}", static_cast<int>(check.state)));
    texts.push_back(check.fix);
    texts.push_back(check.number ? fmt::format("{}", *check.number) : "");
  }
  return texts;
}

std::vector<Check> from_texts(const std::vector<std::string>& texts) {
  FSDP_CHECK(texts.size() % kTexts == 0, "[doctor] expected {} texts for each check, got {}",
             kTexts, texts.size());
  std::vector<Check> checks;
  for (size_t i = 0; i < texts.size(); i += kTexts) {
    const std::string& number = texts[i + 4];
    checks.push_back({.name = texts[i],
                      .value = texts[i + 1],
                      .state = static_cast<State>(std::atoi(texts[i + 2].c_str())),
                      .fix = texts[i + 3]});
    if (!number.empty()) checks.back().number = std::strtod(number.c_str(), nullptr);
  }
  return checks;
}

Json to_json(const std::vector<HostReport>& hosts) {
  Json all = Json::array();
  for (const HostReport& host : hosts) {
    Json checks = Json::array();
    for (const Check& check : host.checks) {
      checks.push_back({{"name", check.name},
                        {"state", name_of(check.state)},
                        {"value", check.value},
                        {"fix", check.fix}});
    }
    all.push_back({{"host", host.host}, {"checks", checks}});
  }
  Json out = Json::object();
  out["hosts"] = all;
  return out;
}

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

// The groups of each check, in the order in which the hosts have the checks.
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
