// Contract: tools/report/failure_log.h.
#include "tools/report/failure_log.h"

#include <array>
#include <sstream>

#include "core/io/file.h"
#include "tools/report/run_costs.h"

namespace fsdp::tools {
namespace {

constexpr std::array kCosts = {"steps_lost", "lost_s", "detection_s", "pause_s", "restart_s"};

std::filesystem::path file_of(const std::filesystem::path& run_directory) {
  return run_directory / "failures.jsonl";
}

Json json_of(const Failure& f) {
  return {{"time", utc_text(f.end.time)},
          {"host", f.end.host.empty() ? Json() : Json(f.end.host)},
          {"rank", f.end.rank < 0 ? Json() : Json(f.end.rank)},
          {"cause", f.end.cause},
          {"status", f.end.status < 0 ? Json() : Json(f.end.status)},
          {"restart", f.restart},
          {"step", f.step},
          {"steps_lost", f.steps_lost},
          {"lost_s", f.lost_s},
          {"detection_s", f.detection_s},
          {"pause_s", f.pause_s},
          {"restart_s", f.restart_s}};
}

// The older half as one line.
void shorten(std::vector<Json>& lines) {
  const auto half = lines.begin() + static_cast<std::ptrdiff_t>(lines.size() / 2);
  Json sum = {{"failures", int64_t{0}}, {"time", (half - 1)->value("time", "")}};
  int64_t failures = 0;
  for (auto line = lines.begin(); line != half; ++line)
    failures += line->value("failures", int64_t{1});
  sum["failures"] = failures;
  for (const char* key : kCosts) {
    double all = 0;
    for (auto line = lines.begin(); line != half; ++line) all += line->value(key, 0.0);
    sum[key] = all;
  }
  lines.erase(lines.begin(), half);
  lines.insert(lines.begin(), sum);
}

template <typename Change>
void change(const std::filesystem::path& run_directory, Change&& what) {
  try {
    std::vector<Json> lines = read_failures(run_directory);
    what(lines);
    std::string text;
    for (const Json& line : lines) text += line.dump() + "\n";
    write_file_atomically(file_of(run_directory), text);
  } catch (const Error&) {
  }
}

}  // namespace

void append_failure(const std::filesystem::path& run_directory, const Failure& failure,
                    size_t most) {
  change(run_directory, [&](std::vector<Json>& lines) {
    if (lines.size() >= most) shorten(lines);
    lines.push_back(json_of(failure));
  });
}

void complete_failure(const std::filesystem::path& run_directory, double pause_s,
                      double restart_s) {
  change(run_directory, [&](std::vector<Json>& lines) {
    if (lines.empty()) return;
    lines.back()["pause_s"] = pause_s;
    lines.back()["restart_s"] = restart_s;
  });
}

std::vector<Json> read_failures(const std::filesystem::path& run_directory) {
  std::vector<Json> lines;
  if (!is_there(file_of(run_directory))) return lines;
  std::istringstream text(read_file(file_of(run_directory)));
  for (std::string line; std::getline(text, line);) {
    try {
      Json json = Json::parse(line);
      if (json.is_object()) lines.push_back(std::move(json));
    } catch (const std::exception&) {
    }
  }
  return lines;
}

}  // namespace fsdp::tools
