// Largest differences and the table that shows them.
#include "tools/verify/difference_report.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/ranges.h>

#include "comm/exchange.h"
#include "core/error.h"

namespace fsdp::tools {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

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
  FSDP_CHECK(got.size() == expected.size(), "[difference] expected {} values, got {}",
             expected.size(), got.size());
  for (size_t i = 0; i < got.size(); ++i) add(got[i], expected[i]);
}

double Difference::relative() const {
  if (largest_ == 0) return 0;
  return expected_ > 0 ? largest_ / expected_ : kInfinity;
}

double Difference::relative(double scale, double rounding) const {
  return expected_ <= rounding ? largest_ / (scale > 0 ? scale : 1) : relative();
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

std::vector<std::string> Report::part_names() const {
  std::vector<std::string> names;
  for (const Check& check : checks_) {
    for (const auto& [part, error] : check.parts) names.push_back(check.name + ": " + part);
  }
  return names;
}

std::vector<double> Report::part_errors() const {
  std::vector<double> errors;
  for (const Check& check : checks_) {
    for (const auto& [part, error] : check.parts) errors.push_back(error);
  }
  return errors;
}

void Report::merge_errors(const std::vector<double>& other) {
  auto error = other.begin();
  for (Check& check : checks_) {
    Check merged;
    merged.name = check.name;
    merged.limit = check.limit;
    merged.judge_error = check.judge_error;
    for (const auto& [part, own] : check.parts) merged.add(part, std::max(own, *error++));
    check = std::move(merged);
  }
}

void agree_on_report(comm::Communicator& world, Report& report) {
  const std::vector<std::string> names = report.part_names();
  for (const std::vector<std::string>& others : comm::exchange_texts(world, names)) {
    FSDP_CHECK(others == names, "[report] checks of another rank: expected {}, got {}",
               fmt::join(names, ", "), fmt::join(others, ", "));
  }
  for (const std::vector<double>& errors : comm::exchange_lists(world, report.part_errors())) {
    report.merge_errors(errors);
  }
}

}  // namespace fsdp::tools
