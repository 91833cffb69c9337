// Contract: tools/report/run_costs.h.
#include "tools/report/run_costs.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <ctime>
#include <mutex>
#include <system_error>

#include <fcntl.h>
#include <sys/stat.h>

#include "core/io/file.h"

namespace fsdp::tools {
namespace {

constexpr double kBetweenWrites = 0.1;  // seconds
constexpr std::chrono::seconds kBetweenTouches(2);

// By its name: who has put another file in its place is no run that lives.
void touch_until(const std::stop_token& end, const std::filesystem::path& path) {
  std::mutex mutex;
  std::condition_variable_any wakes;
  std::unique_lock lock(mutex);
  while (!end.stop_requested()) {
    ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0);
    wakes.wait_for(lock, end, kBetweenTouches, [] { return false; });
  }
}

// Always as long, so that a shorter text leaves nothing of a longer one.
std::string text_of(const RunProgress& progress) {
  constexpr size_t kLength = 511;
  std::string text = to_json(progress).dump();
  text.resize(kLength, ' ');
  return text + "\n";
}

}  // namespace

Json to_json(const RunProgress& progress) {
  Json json = {{"seen", progress.seen},
               {"step", progress.step},
               {"wall_time_s", progress.wall_time_s},
               {"durable_step", progress.durable_step}};
  visit_costs(progress.costs, [&](const char* key, const auto& value) { json[key] = value; });
  return json;
}

RunProgress read_progress(const std::filesystem::path& file) {
  const Json json = read_json_file(file);
  try {
    RunProgress progress = {.seen = json.at("seen"),
                            .step = json.at("step"),
                            .wall_time_s = json.at("wall_time_s"),
                            .durable_step = json.value("durable_step", int64_t{0})};
    visit_costs(progress.costs,
                [&](const char* key, auto& value) { value = json.value(key, value); });
    return progress;
  } catch (const JsonError& error) {
    fail("{}: {}", file.string(), error.what());
  }
}

std::optional<RunProgress> progress_so_far(const std::filesystem::path& file) {
  try {
    return is_there(file) ? std::optional(read_progress(file)) : std::nullopt;
  } catch (const SystemError&) {
    throw;
  } catch (const Error&) {
    return {};
  }
}

RunProgress begin_again(const RunProgress& before, const TrainTotals& kept, double ended_before) {
  RunProgress now = {.step = kept.steps,
                     .wall_time_s = kept.wall_time_s,
                     .durable_step = before.durable_step,
                     .costs = before.costs,
                     .ended_before = ended_before};
  ++now.costs.restarts;
  now.costs.lost_s += std::max(before.wall_time_s - kept.wall_time_s, 0.0);
  if (before.seen > 0) now.costs.detection_s += std::max(ended_before - before.seen, 0.0);
  return now;
}

// The first text is on the disk when this returns; the later ones replace it in its place.
ProgressFile::ProgressFile(const std::filesystem::path& path, const RunProgress& begin,
                           std::function<double()> age, CameBack came_back)
    : now_(begin), begun_at_(begin.step), age_(std::move(age)), came_back_(std::move(came_back)) {
  path_ = path;
  make();
  try {
    touches_ = std::make_unique<std::jthread>(
        [path](const std::stop_token& end) { touch_until(end, path); });
  } catch (const std::system_error&) {  // no thread to spare: the steps are the only sign of life
  }
}

void ProgressFile::step(const TrainTotals& totals, bool end) {
  if (!file_.is_open() || totals.steps == begun_at_) return;
  const double now = unix_time();
  const bool first = now_.seen == 0;
  if (first && now_.costs.restarts > 0) came_back(now);
  if (!first && !end && now - now_.seen < kBetweenWrites) return;
  now_.seen = now;
  now_.step = totals.steps;
  now_.wall_time_s = totals.wall_time_s;
  write();
}

void ProgressFile::came_back(double now) {
  const double age = age_();
  const double begun = now - age, ended = now_.ended_before;
  const double pause = ended > 0 ? std::max(begun - ended, 0.0) : 0;
  now_.costs.pause_s += pause;
  now_.costs.restart_s += age;
  if (came_back_) came_back_(pause, age);
}

void ProgressFile::add_save(double stall_s, double write_s) {
  now_.costs.save_stall_s += stall_s;
  now_.costs.save_write_s += write_s;
}

void ProgressFile::note_durable(int64_t step) {
  if (!file_.is_open()) return;
  now_.durable_step = step;
  try {
    if (!is_there(path_)) make();
  } catch (const Error&) {
  }
  write();
}

void ProgressFile::make() {
  write_file_atomically(path_, text_of(now_));
  file_ = std::fstream(path_, std::ios::in | std::ios::out);
}

void ProgressFile::write() {
  file_.clear();
  file_.seekp(0);
  file_ << text_of(now_) << std::flush;
}

std::string utc_text(double unix_seconds) {
  const auto seconds = static_cast<std::time_t>(unix_seconds);
  std::tm parts = {};
  ::gmtime_r(&seconds, &parts);
  std::array<char, 32> text = {};
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S UTC", &parts);
  return text.data();
}

double unix_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace fsdp::tools
