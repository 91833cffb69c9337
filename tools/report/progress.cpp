// The live line and its plain form.
#include "tools/report/progress.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "core/text/numbers.h"

namespace fsdp::tools {
namespace {

constexpr double kRefreshSeconds = 0.1;  // of the live line

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// A line that wraps cannot be rewritten.
std::string cut_to_width(const std::string& line, int terminal) {
  winsize size = {};
  if (::ioctl(terminal, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return line;
  return line.substr(0, static_cast<size_t>(size.ws_col) - 1);
}

}  // namespace

int output_terminal(bool under_launcher) {
  if (!under_launcher) return ::isatty(STDOUT_FILENO) != 0 ? STDOUT_FILENO : -1;
  const std::string path = fmt::format("/proc/{}/fd/{}", ::getppid(), STDOUT_FILENO);
  std::error_code unreadable;
  if (!std::filesystem::read_symlink(path, unreadable).string().starts_with("/dev/")) return -1;
  const int terminal = ::open(path.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC);
  return terminal >= 0 && ::isatty(terminal) != 0 ? terminal : -1;
}

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds)) return "?";
  const auto s = static_cast<int64_t>(std::llround(std::max(seconds, 0.0)));
  if (s < 3600) return fmt::format("{}:{:02}", s / 60, s % 60);
  return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
}

std::string format_progress(const StepMetrics& m) {
  const std::string scale =
      m.loss_scale == 1 && m.totals.skipped == 0
          ? ""
          : fmt::format("scale {:g}  skipped {}  ", m.loss_scale, m.totals.skipped);
  return fmt::format(
      "step {:>{}}/{}  loss {}  grad norm {:.3f}  lr {:.2e}  {}{} tokens/s  {:.1f} MiB  ETA {}",
      m.totals.steps, fmt::formatted_size("{}", m.total_steps), m.total_steps,
      format_fixed(m.loss, 4), std::abs(m.grad_norm), m.learning_rate, scale,
      format_count(std::llround(m.tokens_per_s)),
      static_cast<double>(m.peak_memory_bytes) / (1 << 20), format_duration(m.seconds_left()));
}

void Progress::step(const StepMetrics& metrics) {
  if (out_ == nullptr) return;
  const int64_t step = metrics.totals.steps;
  const bool last = step == metrics.total_steps;
  if (terminal_ >= 0) {
    const double now = steady_seconds();
    if (!last && now - shown_at_ < kRefreshSeconds) return;
    shown_at_ = now;
    out_->put("\r\x1b[K" + cut_to_width(format_progress(metrics), terminal_));
    line_open_ = true;
  } else if (last || step == 1 || step % every_ == 0) {
    out_->put(format_progress(metrics) + "\n");
  }
}

void Progress::note(const std::string& text) {
  if (out_ == nullptr) return;
  out_->put((line_open_ ? "\r\x1b[K" : "") + text + "\n");
  line_open_ = false;
}

void Progress::end_line() {
  if (line_open_) out_->put("\n");
  line_open_ = false;
}

}  // namespace fsdp::tools
