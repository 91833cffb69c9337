// How far predicted steps are from published ones: set by set, with the machine files as they are,
// or with two constants that were fitted on other rows.
// Read next: published_rows.h, tools/predict/call_rates.h.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/io/json.h"
#include "tools/plan/published_rows.h"

namespace fsdp::tools {

enum class Fit : uint8_t {
  kNone,          // machine files as they are
  kLeaveOneSize,  // on the rows of the set with other model sizes
  kLeaveOneSet,   // on the rows of other sets whose GPUs have as many multiprocessors
};

struct RowResult {
  PublishedRow row;
  double predicted_s = 0;
  bool fitted = false;  // with constants that were fitted for it; else the machine's file's
  std::string skipped;  // why there is no prediction; "": there is
  double error() const { return predicted_s / row.step_s - 1; }  // of time; above 0: too slow
};

struct SetResult {
  std::string name, machine;
  std::string kernels;  // whose memory-bound kernels
  int rows = 0, usable = 0;
  double median = 0, p90 = 0;  // of the error's size
  double within_10 = 0;        // share of usable rows
  int constants = 0;           // that were fitted on published rows
  bool fitted = false;         // as of RowResult
  std::string worst;           // "rows.csv:12"
  double worst_error = 0;
};

struct Validation {
  Fit fit = Fit::kNone;
  std::vector<SetResult> sets;  // in order of first row
  std::vector<RowResult> rows;  // in order of the files
};

// `progress`: told after each prediction how many of how many are done.
Validation validate(const std::vector<PublishedRow>& rows, Fit fit,
                    const std::function<void(int64_t done, int64_t all)>& progress = {});

std::string format_validation(const Validation& validation);
Json validation_json(const Validation& validation);

}  // namespace fsdp::tools
