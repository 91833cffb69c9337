// Contract: tools/doctor/job_checks.h.
#include "tools/doctor/job_checks.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "core/text/shell_word.h"

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

// Of the first host that has what most have; null: no host has the check.
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
  check.fault(surely > kSkewFails ? State::kFail : State::kWarn,
              "chronyc makestep   # without chrony: systemctl restart systemd-timesyncd");
  return check;
}

}  // namespace fsdp::tools::doctor
