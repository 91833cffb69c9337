// Contract: tools/jobs/silence.h.
#include "tools/jobs/silence.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>

#include <fmt/format.h>

#include "core/io/file.h"
#include "tools/launch/ring_dump.h"

namespace fsdp::tools {
namespace {

using std::chrono::seconds;

std::string text_of(std::chrono::duration<double> time, const std::string& why) {
  return fmt::format("no sign of life of the job for {:.0f} s: {}", time.count(), why);
}

}  // namespace

std::string Silence::after(const RunWatch::Look& look, Clock::time_point now) {
  constexpr seconds kLeast(60);   // a file system may know late that a file has changed
  constexpr seconds kLongest(2);  // beyond, this process did not run either
  const auto passed = std::min<std::chrono::duration<double>>(now - last_, kLongest);
  last_ = now;
  stopped_ = process_state(job_) == "T" ? stopped_ + passed : passed.zero();
  if (stopped_ > limit_) return text_of(stopped_, fmt::format("process {} is stopped", job_));
  if (!look.problem.empty()) return "";
  // What an earlier start has left is no sign of this one.
  if (look.sign_of_life != sign_) {
    lives_ = lives_ || sign_ >= 0;
    sign_ = look.sign_of_life;
    silent_ = passed.zero();
  } else if (lives_) {
    silent_ += passed;
  }
  // sign_ 0: no file, which is no stopped job: somebody has removed it.
  if (sign_ == 0 || silent_ <= std::max(limit_, kLeast)) return "";
  return text_of(silent_, "nothing touches progress.json in the run directory");
}

std::vector<pid_t> processes_below(pid_t process) {
  std::multimap<pid_t, pid_t> children;
  for (const std::string& name : names_in("/proc")) {
    if (name.find_first_not_of("0123456789") != name.npos) continue;
    std::ifstream stat("/proc/" + name + "/stat");
    const std::string text((std::istreambuf_iterator<char>(stat)), {});
    const size_t state = text.rfind(") ");  // "12 (name of it) S 7 ...": its parent is 7
    if (state == text.npos || text.size() < state + 5) continue;
    children.emplace(std::atoi(text.c_str() + state + 4), std::atoi(name.c_str()));
  }
  std::vector<pid_t> found = {process};
  for (size_t i = 0; i < found.size(); ++i) {
    const auto [first, end] = children.equal_range(found[i]);
    for (auto child = first; child != end; ++child) found.push_back(child->second);
  }
  found.erase(found.begin());
  return found;
}

}  // namespace fsdp::tools
