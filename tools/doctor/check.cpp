// Checks as texts and as JSON. Contract: tools/doctor/check.h.
#include "tools/doctor/check.h"

#include <algorithm>
#include <cstdlib>

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

}  // namespace fsdp::tools::doctor
