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

// Ended by a signal that a mistake of the program makes (of the kernel none does, of a person few).
bool is_crash(int status) {
  for (const int signal : {SIGILL, SIGABRT, SIGFPE, SIGSEGV}) {
    if (status == 128 + signal) return true;
  }
  return false;
}

std::string minutes_text(std::chrono::seconds time) {
  return time.count() < 120 ? fmt::format("{} s", time.count())
                            : fmt::format("{} min", (time.count() + 59) / 60);
}

}  // namespace

std::chrono::seconds Restarts::pause_after(int64_t in_a_row) const {
  const int64_t steps_up = std::min<int64_t>(in_a_row, 8);
  return std::min(limits_.longest_pause, limits_.first_pause * (int64_t{1} << (3 * steps_up)));
}

// See [Note: what counts].
bool Restarts::is_of_machine(const StartEnd& end) const {
  if (!end.problem.empty()) return true;
  return !end.stepped && (works_ || limits_.several_hosts) && !is_crash(end.status);
}

Restarts::Decision Restarts::count_failure(const std::string& ended) {
  if (counted_ == limits_.most) {
    return {.why = fmt::format("{}, after {} restarts (--restart)", ended, counted_)};
  }
  if (in_vain_ >= limits_.without_progress) {
    return {
        .status = status::kGaveUp,
        .why = fmt::format("{}; {} restarts in a row brought no checkpoint after step {}: given up",
                           ended, in_vain_, durable_step_)};
  }
  ++count_, ++counted_;
  const std::chrono::seconds pause = pause_after(in_vain_);
  return {.again = true,
          .pause = pause,
          .why = fmt::format("{}; the last checkpoint is of step {}; restart {} of {} in {} s",
                             ended, durable_step_, counted_, limits_.most, pause.count())};
}

Restarts::Decision Restarts::have_patience(const std::string& ended, std::chrono::seconds at) {
  if (!waiting_since_) waiting_since_ = at;
  const std::chrono::seconds left = limits_.patience - (at - *waiting_since_);
  if (left.count() <= 0) {
    return {.status = status::kGaveUp,
            .why = fmt::format("{}; could not go on for {} (--patience): given up", ended,
                               minutes_text(limits_.patience))};
  }
  ++count_;
  const std::chrono::seconds pause = std::min(pause_after(waits_++), left);
  return {.again = true,
          .pause = pause,
          .why = fmt::format("{}; the last checkpoint is of step {}; another start in {} s, for up "
                             "to {} more (--patience)",
                             ended, durable_step_, pause.count(), minutes_text(left))};
}

Restarts::Decision Restarts::wait(const std::string& problem, std::chrono::seconds at) {
  constexpr std::chrono::seconds kTell(60);
  if (!waiting_since_) waiting_since_ = at;
  const std::chrono::seconds waited = at - *waiting_since_, left = limits_.patience - waited;
  if (left.count() <= 0) {
    return {.status = status::kGaveUp,
            .why = fmt::format("{}, for {} (--patience): given up", problem,
                               minutes_text(limits_.patience))};
  }
  Decision more = {.again = true};
  if (told_ && at - *told_ < kTell) return more;
  told_ = at;
  more.why =
      fmt::format("{}: waiting, for up to {} more (--patience)", problem, minutes_text(left));
  return more;
}

Restarts::Decision Restarts::after(const StartEnd& end) {
  const bool first = durable_step_ < 0;
  // Of a run that has begun anew (--restart-from-scratch) a new checkpoint is of an earlier step.
  const bool progress = !first && end.durable_step != durable_step_;
  durable_step_ = end.durable_step;
  works_ = works_ || end.stepped || durable_step_ > 0;
  told_.reset();
  if (end.stepped || progress) {
    waiting_since_.reset();
    waits_ = 0;
  }
  if (progress) in_vain_ = 0;
  // Ranks are asked by SIGUSR1, whatever the parent was asked by.
  const bool other = end.asked != 0 && end.asked != SIGUSR1 && end.status == status::kStartAgain;
  // Killed by the signal that the ranks were asked by: it came before they could listen.
  const bool early = end.asked != 0 && end.status == 128 + SIGUSR1;
  if (early && end.asked == SIGUSR1) return {.status = status::kNotDurable};
  if (other || early) return {.status = 128 + end.asked};
  if (is_final(end.status) || end.asked != 0 || limits_.most == 0) return {.status = end.status};
  const std::string ended = fmt::format("the job ended with status {}", end.status);
  if (is_of_machine(end)) return have_patience(ended, end.at);
  if (!first && !progress) ++in_vain_;
  Decision next = count_failure(ended);
  if (!next.again && next.status == 0) next.status = end.status;
  return next;
}

}  // namespace fsdp::tools
