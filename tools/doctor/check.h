// The doctor's result: for each host a list of checks, each with its state, the value that was
// found, and the line that mends it. How checks travel between ranks, and what is printed. Read
// next: doctor.h. Not here: what is checked (checks.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/io/json.h"

namespace fsdp::tools::doctor {

enum class State : uint8_t { kOk, kWarn, kFail };
std::string_view name_of(State state);  // "ok", "warn", "fail"

struct Check {
  std::string name;   // "open files"
  std::string value;  // what was found; behind it what is needed, where that is more
  State state = State::kOk;
  std::string fix = {};               // the line that mends it, or would where it is a fault
  std::optional<double> number = {};  // the value, for --expect

  // `more` stands behind the value.
  Check& fault(State how, std::string mended_by, const std::string& more = "") {
    state = how, fix = std::move(mended_by), value += more;
    return *this;
  }
  bool operator==(const Check&) const = default;
};

struct HostReport {
  std::string host;
  std::vector<Check> checks;

  Check* find(std::string_view name);  // null: there is none
};
// "a, b and 62 more"
std::string few_of(const std::vector<std::string>& hosts);
bool any_failed(const std::vector<HostReport>& hosts);

// As comm::exchange_texts() takes them.
std::vector<std::string> to_texts(const std::vector<Check>& checks);
std::vector<Check> from_texts(const std::vector<std::string>& texts);

// {hosts: [{host, checks: [{name, state, value, fix}]}]}
Json to_json(const std::vector<HostReport>& hosts);
// For people: a line for each check, and one more for each group of hosts where hosts differ; below
// it what is wrong, with the line that mends it.
std::string table(const std::vector<HostReport>& hosts);

}  // namespace fsdp::tools::doctor
