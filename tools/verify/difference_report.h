// How far computed numbers are from expected ones, and the report that sets this beside limits.
// Pure, but for agree_on_report. Not here: where the expected numbers come from
// (tools/verify/expected_results.h).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"

namespace fsdp::tools {

// The difference of one tensor, or of several together. Anything that is not finite on either side
// makes the largest difference infinite.
class Difference {
 public:
  void add(double got, double expected);
  void add(std::span<const double> got, std::span<const double> expected);

  double absolute() const { return largest_; }
  double relative() const;  // largest |difference| / largest |expected|
  // The same, but where everything expected is within `rounding` of zero: / `scale`. A zero that
  // was summed up from values of that scale is computed as a few of its last bits. A scale of 0
  // counts as 1.
  double relative(double scale, double rounding) const;
  double rms() const;
  int64_t count() const { return count_; }

 private:
  double largest_ = 0;
  double expected_ = 0;
  double squares_ = 0;
  int64_t count_ = 0;
};

// |got - expected| / |expected|; infinite where one of them is not finite.
double relative_error(double got, double expected);

using Limit = std::optional<double>;  // empty: the error is printed, not judged

// One line of the report: the worst of the errors it was given.
struct Check {
  std::string name;
  Limit limit;
  double error = 0;
  std::string worst;                                  // which tensor or step
  std::vector<std::pair<std::string, double>> parts;  // every error, in order
  std::optional<double> judge_error;                  // what excuses an error above the limit

  void add(const std::string& part, double part_error);
  bool within_limit() const { return !limit || error <= *limit; }
  bool passed() const { return within_limit() || judge_error; }
};

class Report {
 public:
  // A reference that stays valid only until the next call.
  Check& check(const std::string& name, Limit limit);
  const std::vector<Check>& checks() const { return checks_; }
  void append(const Report& other) {
    checks_.insert(checks_.end(), other.checks_.begin(), other.checks_.end());
  }
  // Errors stay as they are; one above its limit passes when it is at most twice the judge's own.
  void excuse(const Report& of_judge);
  int64_t excused() const;  // how many
  bool passed() const;
  // Aligned columns, one line per check.
  std::string table() const;

  // Of all parts of all checks, in order: "check: part", and its error.
  std::vector<std::string> part_names() const;
  std::vector<double> part_errors() const;
  // The worse of this rank's errors and another rank's with the same parts.
  void merge_errors(const std::vector<double>& other);

 private:
  std::vector<Check> checks_;
};

// Every rank made the same checks; afterwards all hold the worst error of any rank. Collective.
void agree_on_report(comm::Communicator& world, Report& report);

}  // namespace fsdp::tools
