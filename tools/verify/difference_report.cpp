// Largest differences and the table that shows them.
#include "tools/verify/difference_report.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "core/io/json.h"

namespace fsdp::tools {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// JSON has no infinity: null stands for it.
Json to_json(double error) { return std::isfinite(error) ? Json(error) : Json(); }
double from_json(const Json& error) { return error.is_null() ? kInfinity : error.get<double>(); }

std::string short_number(double value) {
  if (value == 0) return "0";
  return std::isfinite(value) ? fmt::format("{:.1e}", value) : "not finite";
}

std::string verdict(const Check& check) {
  if (check.within_limit()) return "";
  if (!check.judge_error) return "ABOVE THE LIMIT  ";
  return fmt::format("EXCUSED: the f64 run is off by {}  ", short_number(*check.judge_error));
}

}  // namespace

void Difference::add(double got, double expected) {
  const double difference = std::abs(got - expected);
  largest_ = std::isfinite(difference) ? std::max(largest_, difference) : kInfinity;
  expected_ = std::max(expected_, std::abs(expected));
  squares_ += difference * difference;
  ++count_;
}

void Difference::add(std::span<const double> got, std::span<const double> expected) {
  FSDP_CHECK(got.size() == expected.size(), "[comparison] expected {} values, got {}",
             expected.size(), got.size());
  for (size_t i = 0; i < got.size(); ++i) add(got[i], expected[i]);
}

double Difference::relative() const {
  if (largest_ == 0) return 0;
  return expected_ > 0 ? largest_ / expected_ : kInfinity;
}

double Difference::relative(double scale, double rounding) const {
  return expected_ <= rounding && scale > 0 ? largest_ / scale : relative();
}

double Difference::rms() const {
  if (count_ == 0) return 0;
  return std::isfinite(squares_) ? std::sqrt(squares_ / static_cast<double>(count_)) : kInfinity;
}

double relative_error(double got, double expected) {
  Difference difference;
  difference.add(got, expected);
  return difference.relative();
}

void Check::add(const std::string& part, double part_error) {
  if (!std::isfinite(part_error)) part_error = kInfinity;
  if (parts.empty() || part_error > error) {
    error = part_error;
    worst = part;
  }
  parts.emplace_back(part, part_error);
}

Check& Report::check(const std::string& name, Limit limit) {
  for (Check& check : checks_) {
    if (check.name == name) return check;
  }
  Check check;
  check.name = name;
  check.limit = limit;
  return checks_.emplace_back(std::move(check));
}

void Report::excuse(const Report& of_judge) {
  FSDP_CHECK(of_judge.checks_.size() == checks_.size(),
             "[report] checks of the judge: expected {}, got {}", checks_.size(),
             of_judge.checks_.size());
  for (size_t i = 0; i < checks_.size(); ++i) {
    const double judge_error = of_judge.checks_[i].error;
    if (checks_[i].within_limit() || !std::isfinite(judge_error)) continue;
    if (checks_[i].error <= 2 * judge_error) checks_[i].judge_error = judge_error;
  }
}

int64_t Report::excused() const {
  return std::count_if(checks_.begin(), checks_.end(),
                       [](const Check& c) { return c.judge_error.has_value(); });
}

bool Report::passed() const {
  return std::all_of(checks_.begin(), checks_.end(), [](const Check& c) { return c.passed(); });
}

std::string Report::table() const {
  size_t width = 8;
  for (const Check& check : checks_) width = std::max(width, check.name.size());
  std::string out =
      fmt::format("{:<{}}  {:>13}  {:>8}\n", "quantity", width, "largest error", "limit");
  for (const Check& check : checks_) {
    const std::string limit = check.limit ? short_number(*check.limit) : "none";
    std::string line = fmt::format("{:<{}}  {:>13}  {:>8}  {}", check.name, width,
                                   short_number(check.error), limit, verdict(check));
    if (check.error != 0) line += check.worst;
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::string Report::errors() const {
  Json all = Json::array();
  for (const Check& check : checks_) {
    Json errors = Json::array();
    for (const auto& [part, error] : check.parts) errors.push_back(to_json(error));
    all.push_back(std::move(errors));
  }
  return all.dump();
}

void Report::merge_errors(const std::string& other) {
  const Json all = parse_json(other, "errors of another rank");
  FSDP_CHECK(all.size() == checks_.size(), "[report] checks of another rank: expected {}, got {}",
             checks_.size(), all.size());
  for (size_t i = 0; i < checks_.size(); ++i) {
    Check merged;
    merged.name = checks_[i].name;
    merged.limit = checks_[i].limit;
    merged.judge_error = checks_[i].judge_error;
    const auto& parts = checks_[i].parts;
    FSDP_CHECK(all[i].size() == parts.size(), "[report] {} of another rank: expected {}, got {}",
               merged.name, parts.size(), all[i].size());
    for (size_t part = 0; part < parts.size(); ++part) {
      merged.add(parts[part].first, std::max(parts[part].second, from_json(all[i][part])));
    }
    checks_[i] = std::move(merged);
  }
}

void agree_on_report(comm::Communicator& world, Report& report) {
  for (const std::string& other : world.exchange(report.errors())) report.merge_errors(other);
}

}  // namespace fsdp::tools
