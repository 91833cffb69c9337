// Checks over all hosts: tables of the values that must be alike, and of numbers that can be
// expected. Contract: tools/doctor/checks.h.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <limits>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "comm/exchange.h"
#include "core/error.h"
#include "core/text/shell_word.h"
#include "tools/doctor/checks.h"

namespace fsdp::tools::doctor {
namespace {

struct Alike {
  const char* check;
  State state;      // of a host that differs
  const char* fix;  // {}: the value that is right
};
constexpr const char* kSameLibrary = "tools/setup.sh --cuda && make   # for {} on this host, too";
constexpr Alike kAlike[] = {
    {"program", State::kFail, ""},
    {"driver", State::kWarn, "apt-get install nvidia-driver   # {}, as on the other hosts"},
    {"CUDA", State::kWarn, kSameLibrary},
    {"cuDNN", State::kWarn, kSameLibrary},
    {"NCCL", State::kFail, kSameLibrary},
    {"GPUs", State::kWarn, "nvidia-smi -L   # {} on the other hosts; nvidia-smi -r -i N"},
    {"MPI", State::kFail, "module load openmpi   # {}, as on the other hosts"},
    {"PMIx", State::kWarn, "module load pmix   # {}, as on the other hosts"},
};

// Beyond that, lines of logs are out of order; beyond the other, Slurm's munge refuses a host soon.
constexpr double kSkewWarns = 1, kSkewFails = 60;  // seconds

// The check of the first host that has the most frequent value; null: no host has the check.
struct Right {
  const Check* check = nullptr;
  std::string host;
};
Right most_frequent(std::vector<HostReport>& hosts, std::string_view name) {
  Right best;
  int64_t votes = 0;
  for (HostReport& host : hosts) {
    const Check* const mine = host.find(name);
    if (!mine) continue;
    const int64_t same = std::ranges::count_if(hosts, [&](HostReport& other) {
      const Check* const its = other.find(name);
      return its && its->value == mine->value;
    });
    if (same > votes) best = {mine, host.host};
    votes = std::max(votes, same);
  }
  return best;
}

std::string fix_of(const Alike& alike, const Right& right, const std::string& program) {
  if (std::string_view(alike.check) == "program") {
    return fmt::format("scp {0}:{1} {1}", right.host, shell_word(program));
  }
  std::string fix = alike.fix;
  return fix.replace(fix.find("{}"), 2, right.check->value);
}

double unix_time() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(since).count();
}

}  // namespace

void compare_hosts(std::vector<HostReport>& hosts, const std::string& program) {
  for (const Alike& alike : kAlike) {
    const Right right = most_frequent(hosts, alike.check);
    for (HostReport& host : hosts) {
      Check* const check = host.find(alike.check);
      if (!check || check->value == right.check->value) continue;
      check->state = std::max(check->state, alike.state);
      if (check->fix.empty()) check->fix = fix_of(alike, right, program);
    }
  }
}

Check clock_check(const ClockOffset& offset, const std::string& other) {
  const bool seconds = std::abs(offset.seconds) >= 1;
  Check check = {.name = "clock", .number = std::abs(offset.seconds)};
  check.value =
      fmt::format("{:+.1f} {} against {}, within {:.1f} ms", offset.seconds * (seconds ? 1 : 1e3),
                  seconds ? "s" : "ms", other, offset.uncertainty * 1e3);
  const double surely = std::abs(offset.seconds) - offset.uncertainty;
  if (surely <= kSkewWarns) return check;
  return check.fault(surely > kSkewFails ? State::kFail : State::kWarn,
                     "chronyc makestep   # without chrony: systemctl restart systemd-timesyncd");
}

std::vector<std::vector<Stamps>> stamp_exchanges(comm::Communicator& world, int exchanges) {
  std::vector<Stamps> mine;
  for (int i = 0; i < exchanges; ++i) {
    Stamps stamps = {.before = unix_time()};
    world.barrier();
    stamps.after = unix_time();
    mine.push_back(stamps);
  }
  return comm::exchange_lists(world, mine);
}

// Offset o = own clock - other clock. Own `after` is later than the other's `before`:
// own.after - o >= other.before; and the other way round.
ClockOffset clock_offset(const std::vector<Stamps>& own, const std::vector<Stamps>& other) {
  double least = -std::numeric_limits<double>::infinity(), most = -least;
  for (size_t i = 0; i < own.size(); ++i) {
    most = std::min(most, own[i].after - other[i].before);
    least = std::max(least, own[i].before - other[i].after);
  }
  return {.seconds = (least + most) / 2, .uncertainty = std::max(0.0, (most - least) / 2)};
}

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
               "{} is given twice", one.name);
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
