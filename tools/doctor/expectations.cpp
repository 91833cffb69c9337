// The list of numbers that can be expected. Contract: tools/doctor/expectations.h.
#include "tools/doctor/expectations.h"

#include <algorithm>
#include <charconv>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.h"

namespace fsdp::tools::doctor {
namespace {

struct Known {
  const char* name;
  const char* check;  // whose number it is
  const char* fix;    // where the check knows none; {}: what is expected
};
constexpr Known kKnown[] = {
    {"gpus", "GPUs", "srun --gpus-per-node={} ...   # docker run --gpus all; nvidia-smi -L"},
    {"ranks", "ranks", "mpirun -n {} ...   # srun -n {}"},
    {"hosts", "hosts", "srun -N {} ...   # mpirun --host a:8,b:8"},
    {"cores", "CPU", "mpirun --bind-to none ...   # srun --cpus-per-task={}"},
    {"memory_gib", "memory", "srun --mem={}G ...   # docker run --memory={}g"},
    {"open_files", "open files", "ulimit -n {}"},
    {"memlock_mib", "memlock", "ulimit -l unlimited"},
    {"shm_mib", "/dev/shm", "mount -o remount,size={}M /dev/shm"},
    {"nic_gbit", "network", "ethtool -s CARD speed {}000 autoneg on   # ip -br link; ibstat"},
    {"nvlinks", "NVLink", "systemctl restart nvidia-fabricmanager"},
    {"numa_nodes", "NUMA", "numactl --hardware   # NUMA nodes per socket, in the firmware"},
    {"folder_gib", "folder space", "fsdp doctor --folder FOLDER   # of a larger file system"},
    {"write_mib_s", "folder write", "fsdp doctor --folder FOLDER   # of a faster file system"},
};

std::string with_number(std::string text, double number) {
  for (size_t at = 0; (at = text.find("{}")) != text.npos;) {
    text.replace(at, 2, fmt::format("{:.15g}", number));
  }
  return text;
}

Expectation parse_one(const std::string& text) {
  const size_t equals = std::min(text.find('='), text.size());
  Expectation out = {.name = text.substr(0, equals)};
  FSDP_CHECK(std::ranges::any_of(kKnown, [&](const Known& k) { return k.name == out.name; }),
             "expected one of {}, got \"{:.40}\"", expectation_names(), out.name);
  const char* const begin = text.data() + std::min(equals + 1, text.size());
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(begin, end, out.least);
  FSDP_CHECK(error == std::errc() && rest == end && out.least > 0 && out.least < 1e15,
             "expected a number above 0 behind {}=, got \"{:.40}\"", out.name, begin);
  return out;
}

}  // namespace

std::vector<Expectation> parse_expectations(const std::string& text) {
  std::vector<Expectation> out;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const Expectation one = parse_one(part);
    FSDP_CHECK(std::ranges::none_of(out, [&](const auto& other) { return other.name == one.name; }),
               "{} is there twice", one.name);
    out.push_back(one);
  }
  return out;
}

std::string expectation_names() {
  std::vector<std::string> names;
  for (const Known& known : kKnown) names.emplace_back(known.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

void demand(const std::vector<Expectation>& expected, std::vector<HostReport>& hosts) {
  for (const Expectation& expectation : expected) {
    const Known& known = *std::ranges::find_if(
        kKnown, [&](const Known& each) { return each.name == expectation.name; });
    for (HostReport& host : hosts) {
      Check* const check = host.find(known.check);
      if (!check || check->number.value_or(0) >= expectation.least) continue;
      check->state = State::kFail;
      check->value += fmt::format("; expected {}={:.15g}", expectation.name, expectation.least);
      if (check->fix.empty()) check->fix = with_number(known.fix, expectation.least);
    }
  }
  for (HostReport& host : hosts) {
    for (Check& check : host.checks) {
      if (check.state == State::kOk) check.fix.clear();
    }
  }
}

}  // namespace fsdp::tools::doctor
