// Contract: tools/jobs/restarts.h.
#include "tools/jobs/restarts.h"

#include <algorithm>
#include <csignal>

#include <fmt/format.h>

#include "tools/launch/status.h"

namespace fsdp::tools {
namespace {

// Another start would end in the same way, or is another one's to make.
bool is_final(int status) {
  switch (status) {
    case status::kDone:
    case status::kCommandLine:
    case status::kDoesNotFit:
    case status::kNotDurable:
    case status::kStartAgain:
    case status::kGaveUp:
    case status::kMistake:
      return true;
    default:
      return false;
  }
}

}  // namespace

Restarts::Decision Restarts::after(int status, int asked, int64_t durable_step) {
  const bool first = durable_step_ < 0;
  in_vain_ = !first && durable_step <= durable_step_ ? in_vain_ + 1 : 0;
  durable_step_ = std::max(durable_step_, durable_step);
  // Ranks are asked by SIGUSR1, whatever the parent was asked by.
  const bool other = asked != 0 && asked != SIGUSR1 && status == status::kStartAgain;
  // Killed by the signal that the ranks were asked by: it came before they could listen.
  const bool early = asked != 0 && status == 128 + SIGUSR1;
  if (early && asked == SIGUSR1) return {.status = status::kNotDurable, .why = ""};
  if (other || early) return {.status = 128 + asked, .why = ""};
  if (is_final(status) || asked != 0) return {.status = status, .why = ""};
  const std::string ended = fmt::format("the job ended with status {}", status);
  if (count_ == limits_.most) {
    const std::string limit = fmt::format("{}, after {} restarts (--restart)", ended, count_);
    return {.status = status, .why = limits_.most == 0 ? "" : limit};
  }
  if (in_vain_ >= limits_.without_progress) {
    return {.status = status::kGaveUp,
            .why = fmt::format("{}; {} restarts in a row brought no checkpoint after that of step "
                               "{}: given up",
                               ended, in_vain_, durable_step_)};
  }
  ++count_;
  const int64_t steps_up = std::min<int64_t>(in_vain_, 8);
  const std::chrono::seconds pause =
      std::min(limits_.longest_pause, limits_.first_pause * (int64_t{1} << (3 * steps_up)));
  return {.again = true,
          .pause = pause,
          .why = fmt::format("{}; the last checkpoint is of step {}; restart {} of {} in {} s",
                             ended, durable_step_, count_, limits_.most, pause.count())};
}

}  // namespace fsdp::tools
