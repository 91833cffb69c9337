// Predictions beside published steps: the bars that the manual's table stands on. All sets with all
// fits: validation_slow_test.cpp.
// Requirements: S2.6.
#include "tools/plan/validation.h"

#include <algorithm>

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"
#include "tests/support/validation_bars.h"
#include "tools/plan/planned_job.h"

namespace fsdp::tools {
namespace {

using test::rows_of;

TEST_CASE("validation: with the machines' files as they are") {
  const Validation validation = validate(rows_of(""), Fit::kNone);
  REQUIRE(validation.rows.size() == 420);
  for (const SetResult& set : validation.sets) {
    CAPTURE(set.name);
    CHECK(set.usable == set.rows);
    CHECK(set.kernels != "ours");
    const bool large = set.name == "nanotron_h100";  // 64 to 256 GPUs of a fabric that varies
    CHECK(set.median < (large ? 0.08 : 0.075));
    CHECK(set.within_10 >= (large ? 0.7 : 0.9));
  }
  // What plans say of them, to the printed digit.
  for (const ValidatedRange& range : validated_ranges()) {
    double median = 0, p90 = 0;
    for (const SetResult& set : validation.sets) {
      if (set.machine != range.machine) continue;
      median = std::max(median, set.median);
      p90 = std::max(p90, set.p90);
    }
    CAPTURE(range.machine);
    CHECK(fmt::format("{:.3f} {:.3f}", median, p90) ==
          fmt::format("{:.3f} {:.3f}", range.median, range.p90));
  }
  // Up to four nodes, data parallel.
  std::vector<double> few;
  for (const RowResult& each : validation.rows) {
    if (each.row.set == "nanotron_h100" && each.row.gpus <= 32)
      few.push_back(std::abs(each.error()));
  }
  REQUIRE(few.size() == 15);
  std::sort(few.begin(), few.end());
  CHECK(few[7] < 0.08);
}

TEST_CASE("validation: torchtitan, each row, and the loss from 8 to 128 GPUs") {
  std::map<std::pair<std::string, int>, double> predicted_s;
  for (const RowResult& each : validate(rows_of("torchtitan"), Fit::kNone).rows) {
    CHECK(std::abs(each.error()) < 0.1);
    predicted_s[{each.row.set, each.row.gpus}] = each.predicted_s;
  }
  REQUIRE(predicted_s.size() == 4);
  for (const std::string set : {"torchtitan_eager", "torchtitan_compile"}) {
    CHECK(predicted_s[{set, 128}] > predicted_s[{set, 8}]);
  }
}

// Of few micro-steps, so that they take little time.
std::vector<PublishedRow> quick_rows() {
  std::vector<PublishedRow> rows = rows_of("mosaicml_h100");
  std::erase_if(rows, [](const PublishedRow& row) {
    return row.gpus > 8 || row.accumulate > 2 || row.hidden == 2560;
  });
  return rows;
}

TEST_CASE("validation: a size is predicted with constants of the others alone") {
  const std::vector<PublishedRow> rows = quick_rows();
  const auto predicted = [](const std::vector<PublishedRow>& all, int64_t hidden) {
    std::vector<double> out;
    for (const RowResult& each : validate(all, Fit::kLeaveOneSize).rows) {
      if (each.row.hidden == hidden) out.push_back(each.predicted_s);
    }
    return out;
  };
  const int64_t hidden = 4096, other = 2048;
  std::vector<PublishedRow> slower = rows;
  for (PublishedRow& row : slower) {
    if (row.hidden == hidden) row.step_s *= 2;
  }
  const std::vector<double> before = predicted(rows, hidden);
  CHECK(before == predicted(slower, hidden));
  CHECK(predicted(rows, other) != predicted(slower, other));
}

TEST_CASE("validation: constants are found again in steps that were made with them") {
  std::vector<PublishedRow> rows = quick_rows();
  for (PublishedRow& row : rows) {
    const Constants shipped = shipped_constants(row);
    row.step_s = predicted_step_s(row, {0.8 * shipped[0], 1.3 * shipped[1]});
  }
  const Validation off = validate(rows, Fit::kNone);
  const Validation fitted = validate(rows, Fit::kLeaveOneSize);
  CHECK(off.sets.front().median > 0.05);
  CHECK(fitted.sets.front().median < 0.005);
}

TEST_CASE("validation: rows that cannot be predicted say why, and others are") {
  std::vector<PublishedRow> rows = rows_of("torchtitan");
  rows[0].param_dtype = "fp8";
  rows[1].machine = "TPU";
  rows[2].unusable = "seq is not known";
  const Validation validation = validate(rows, Fit::kNone);
  CHECK(test::contains(validation.rows[0].skipped, "got 'fp8'"));
  CHECK(test::contains(validation.rows[1].skipped, "machine: expected one of"));
  CHECK(validation.rows[2].skipped == "seq is not known");
  CHECK(validation.rows[3].skipped.empty());
  const std::string text = format_validation(validation);
  CHECK(test::contains(text, "1 skipped: seq is not known\n"));
  const Json json = validation_json(validation);
  CHECK(json.at("rows").size() == 4);
  CHECK(json.at("rows")[0].at("predicted_s").is_null());
  CHECK(json.at("rows")[3].at("error").get<double>() ==
        doctest::Approx(validation.rows[3].error()));
  CHECK(json.at("sets")[0].contains("within_10"));
}

}  // namespace
}  // namespace fsdp::tools
