// Differences, limits, and the report that ranks agree on.
#include "tools/verify/difference_report.h"

#include <cmath>
#include <limits>
#include <tuple>

#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "core/error.h"
#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Difference difference_of(const std::vector<double>& got, const std::vector<double>& expected) {
  Difference out;
  out.add(got, expected);
  return out;
}

TEST_CASE("difference: largest, relative to the largest expected, and rms") {
  const Difference d = difference_of({1, -5, 3}, {1, -4, 1});
  CHECK(d.absolute() == 2);
  CHECK(d.relative() == doctest::Approx(0.5));
  CHECK(d.rms() == doctest::Approx(std::sqrt(5.0 / 3)));
  CHECK(d.count() == 3);
}

TEST_CASE("difference: nothing, zeros, and zeros that should be zero") {
  CHECK(Difference().relative() == 0);
  CHECK(Difference().rms() == 0);
  CHECK(difference_of({0, 0}, {0, 0}).relative() == 0);
  CHECK(difference_of({1e-300}, {0}).relative() == kInfinity);
}

TEST_CASE(
    "difference: where zero is expected, rounding is relative to the scale of what was summed") {
  const Difference zero = difference_of({0, 3e-17}, {0, 0});
  CHECK(zero.relative() == kInfinity);
  CHECK(zero.relative(2, 1e-15) == doctest::Approx(1.5e-17));
  CHECK(zero.relative(0, 0) == doctest::Approx(3e-17));  // all others are zero as well
  const Difference noise = difference_of({1e-16, 3e-16}, {-1e-16, 0});
  CHECK(noise.relative(2, 1e-15) == doctest::Approx(1.5e-16));
  const Difference small = difference_of({1.5e-10}, {1e-10});
  CHECK(small.relative(2, 1e-15) == doctest::Approx(0.5));
  CHECK(difference_of({1}, {0}).relative(2, 1e-15) == doctest::Approx(0.5));
  CHECK(difference_of({kNan}, {0}).relative(2, 1e-15) == kInfinity);
}

TEST_CASE("difference: what is not finite is infinitely far, wherever it stands") {
  for (const double bad : {kNan, kInfinity, -kInfinity}) {
    CHECK(difference_of({1, bad, 1}, {1, 1, 1}).absolute() == kInfinity);
    CHECK(difference_of({1, 1, 1}, {bad, 1, 1}).absolute() == kInfinity);
    CHECK(difference_of({bad, 1, 1}, {1, 1, 1}).relative() == kInfinity);
    CHECK(difference_of({bad, 1, 1}, {1, 1, 1}).rms() == kInfinity);
    CHECK(difference_of({bad}, {bad}).absolute() == kInfinity);
  }
}

TEST_CASE("difference: sizes must match") {
  CHECK(fsdp::test::contains(fsdp::test::error_of([] {
                               difference_of({1, 2}, {1});
                             }),
                             "expected 1 values, got 2"));
}

TEST_CASE("report: the worst part is named, a limit is inclusive, nan never passes") {
  Report report;
  report.check("a", 1e-3).add("x", 1e-4);
  report.check("a", 1e-3).add("y", 1e-3);
  report.check("a", 1e-3).add("z", 0);
  REQUIRE(report.checks().size() == 1);
  CHECK(report.checks()[0].worst == "y");
  CHECK(report.passed());
  report.check("printed only", {}).add("", 1e9);
  CHECK(report.passed());
  report.check("b", 1.0).add("p", kNan);
  CHECK(!report.passed());
  CHECK(report.checks()[2].error == kInfinity);
  const std::string table = report.table();
  CHECK(fsdp::test::contains(table, "not finite"));
  CHECK(fsdp::test::contains(table, "ABOVE THE LIMIT  p"));
  CHECK(fsdp::test::contains(table, "1.0e-03   1.0e-03"));
  CHECK(fsdp::test::contains(table, "none"));
}

TEST_CASE("report: ranks agree on the worst error of any, infinity included") {
  constexpr int kRanks = 3;
  std::vector<Report> reports(kRanks);
  comm::run_local_ranks(kRanks, [&](comm::Communicator& world) {
    const int rank = world.rank();
    Report& report = reports[static_cast<size_t>(rank)];
    report.check("a", 1.0).add("x", rank == 1 ? 0.5 : 0.1);
    report.check("a", 1.0).add("y", rank == 2 ? 0.25 : 0.2);
    report.check("b", 1.0).add("only", rank == 2 ? kInfinity : 0);
    agree_on_report(world, report);
  });
  for (const Report& report : reports) {
    REQUIRE(report.checks().size() == 2);
    CHECK(report.checks()[0].error == 0.5);
    CHECK(report.checks()[0].worst == "x");
    CHECK(report.checks()[0].parts[1].second == 0.25);
    CHECK(report.checks()[1].error == kInfinity);
    CHECK(!report.passed());
  }
}

TEST_CASE("report: other checks on another rank are an error, not a silent pass") {
  comm::run_local_ranks(2, [](comm::Communicator& world) {
    Report report;
    report.check("a", 1.0).add("x", 0);
    if (world.rank() == 1) report.check("a", 1.0).add("y", 0);
    CHECK(fsdp::test::error_of([&] { agree_on_report(world, report); }) ==
          (world.rank() == 0 ? "[report] checks of another rank: expected a: x, got a: x, a: y"
                             : "[report] checks of another rank: expected a: x, a: y, got a: x"));
  });
}

TEST_CASE("report: an excuse leaves the error, says the judge's, and ends at twice that") {
  Report report, of_judge;
  for (const auto& [name, error, judged] : {std::tuple{"within", 0.9, 5.0},
                                            {"twice", 3.0, 1.5},
                                            {"beyond", 3.1, 1.5},
                                            {"infinite", kInfinity, kInfinity}}) {
    report.check(name, 1.0).add("x", error);
    of_judge.check(name, 1.0).add("x", judged);
  }
  report.excuse(of_judge);
  CHECK(report.excused() == 1);
  CHECK(report.checks()[1].error == 3.0);
  const bool passed[] = {true, true, false, false};
  for (size_t i = 0; i < 4; ++i) CHECK(report.checks()[i].passed() == passed[i]);
  CHECK(fsdp::test::contains(report.table(),
                             "3.0e+00   1.0e+00  EXCUSED: the f64 run is off by 1.5e+00  x"));
  CHECK_FALSE(report.passed());
  report.merge_errors(report.part_errors());
  CHECK(report.excused() == 1);
}

TEST_CASE("report: appended checks") {
  Report report, other;
  report.check("a", 1e-3).add("", 2e-4);
  other.check("b", 1e-6).add("", 5e-6);
  CHECK(report.passed());
  report.append(other);
  CHECK(report.checks().size() == 2);
  CHECK_FALSE(report.passed());
}

}  // namespace
}  // namespace fsdp::tools
