// Fits, errors, the table.
//
// [Note: the fit] Near its constants the logarithm of a step's time is linear in theirs: two more
// runs of each row say how. The constants are those with the least sum of absolute errors (of
// logarithms), by least squares whose weights are 1/error; then again from there, and again. A
// fit begins at shares of the data sheet's peak, which no row has a part in.
#include "tools/plan/validation.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <numeric>

#include <fmt/format.h>

#include "core/error.h"
#include "tools/plan/other_programs.h"
#include "tools/plan/plan_search.h"
#include "tools/predict/machines.h"
#include "tools/report/text_table.h"

namespace fsdp::tools {
namespace {

class Progress {
 public:
  Progress(int64_t all, const std::function<void(int64_t, int64_t)>& say) : all_(all), say_(say) {}
  void one_more() {
    if (!say_) return;
    const std::scoped_lock lock(mutex_);
    say_(++done_, all_);
  }

 private:
  std::mutex mutex_;
  int64_t done_ = 0, all_;
  const std::function<void(int64_t, int64_t)>& say_;
};

constexpr size_t kConstants = std::tuple_size_v<Constants>;

// The time of a row near its constants: ln t = value + sum of each slope x d ln constant.
struct Slope {
  double value = 0;
  Constants of = {};
};

constexpr double kStep = 1.1;  // of a constant, to see what it changes

Slope slope_of(const PublishedRow& row, const Constants& at) {
  Slope out = {.value = std::log(predicted_step_s(row, at))};
  for (size_t c = 0; c < kConstants; ++c) {
    if (at[c] == 0) continue;
    Constants other = at;
    other[c] *= kStep;
    out.of[c] = (std::log(predicted_step_s(row, other)) - out.value) / std::log(kStep);
  }
  return out;
}

// Of a symmetric matrix without zeros on the way: Gauss's elimination.
Constants solved(std::array<Constants, kConstants> matrix, Constants right) {
  for (size_t i = 0; i < kConstants; ++i) {
    for (size_t j = 0; j < kConstants; ++j) {
      if (i == j) continue;
      const double share = matrix[j][i] / matrix[i][i];
      for (size_t k = i; k < kConstants; ++k) matrix[j][k] -= share * matrix[i][k];
      right[j] -= share * right[i];
    }
  }
  for (size_t i = 0; i < kConstants; ++i) right[i] /= matrix[i][i];
  return right;
}

// [Note: the fit]. Changes of the constants' logarithms; with a preference for none, where rows of
// one size cannot tell two constants from each other.
Constants least_absolute(const std::vector<std::pair<Slope, double>>& rows) {
  constexpr int kRounds = 30;
  constexpr double kPreference = 2, kMost = 0.5;  // of a change
  Constants out = {};
  for (int round = 0; round < kRounds; ++round) {
    std::array<Constants, kConstants> matrix = {};
    Constants right = {};
    for (size_t i = 0; i < kConstants; ++i) matrix[i][i] = kPreference;
    for (const auto& [slope, wanted] : rows) {
      double rest = wanted - slope.value;  // without changes
      for (size_t i = 0; i < kConstants; ++i) rest -= out[i] * slope.of[i];
      const double weight = 1 / std::max(std::abs(rest), 1e-3);
      for (size_t i = 0; i < kConstants; ++i) {
        for (size_t j = 0; j < kConstants; ++j) {
          matrix[i][j] += weight * slope.of[i] * slope.of[j];
        }
        right[i] += weight * slope.of[i] * (wanted - slope.value);
      }
    }
    out = solved(matrix, right);
  }
  for (double& change : out) change = std::clamp(change, -kMost, kMost);
  return out;
}

// Rows that are predicted with the same constants, which are fitted on none of them.
struct Group {
  std::vector<size_t> own;  // places in the list of rows
  std::vector<size_t> of_fit;
};

class Validator {
 public:
  Validator(const std::vector<PublishedRow>& rows, Fit fit) : fit_(fit) {
    for (const PublishedRow& row : rows) {
      results_.push_back({.row = row, .skipped = row.unusable});
      try_row(results_.size() - 1, [](const RowResult& each) { shipped_constants(each.row); });
    }
    make_groups();
  }

  std::vector<RowResult> run(const std::function<void(int64_t, int64_t)>& say) {
    constexpr int kFits = 3;
    const auto of_fits = static_cast<int64_t>(
        std::accumulate(groups_.begin(), groups_.end(), size_t{0},
                        [](size_t sum, const Group& group) { return sum + group.of_fit.size(); }));
    Progress progress(static_cast<int64_t>(results_.size()) + kFits * of_fits, say);
    for (const Group& group : groups_) {
      Constants constants = unfitted_constants(results_[group.own.front()].row);
      for (int again = 0; again < kFits && !group.of_fit.empty(); ++again) {
        constants = fitted(group, constants, progress);
      }
      predict(group, constants, progress);
    }
    return std::move(results_);
  }

 private:
  void make_groups() {
    std::map<std::string, Group> groups;
    for (size_t i = 0; i < results_.size(); ++i) {
      if (results_[i].skipped.empty()) groups[group_of(results_[i].row)].own.push_back(i);
    }
    for (auto& [name, group] : groups) {
      for (size_t i = 0; i < results_.size() && fit_ != Fit::kNone; ++i) {
        const RowResult& other = results_[i];
        if (other.skipped.empty() && is_of_fit(other.row, results_[group.own.front()].row)) {
          group.of_fit.push_back(i);
        }
      }
      groups_.push_back(std::move(group));
    }
  }

  std::string group_of(const PublishedRow& row) const {
    const std::string set = fmt::format("{} on {} in {}", row.set, row.machine, row.param_dtype);
    return fit_ == Fit::kLeaveOneSize ? set + ": " + row.size() : set;
  }

  bool is_of_fit(const PublishedRow& row, const PublishedRow& left) const {
    if (row.param_dtype != left.param_dtype && fit_ == Fit::kLeaveOneSize) return false;
    if (fit_ == Fit::kLeaveOneSize) {
      return row.set == left.set && row.machine == left.machine && row.size() != left.size();
    }
    return row.set != left.set && machine_rates(row.machine).multiprocessors ==
                                      machine_rates(left.machine).multiprocessors;
  }

  // Work on a row that may turn out to be none of ours.
  void try_row(size_t i, const std::function<void(RowResult& row)>& work) {
    if (!results_[i].skipped.empty()) return;
    try {
      work(results_[i]);
    } catch (const Error& error) {
      results_[i].skipped = error.what();
    }
  }

  // [Note: the fit]
  Constants fitted(const Group& group, const Constants& at, Progress& progress) {
    std::vector<std::pair<Slope, double>> rows(group.of_fit.size());
    for_each_index(rows.size(), [&](size_t i) {
      try_row(group.of_fit[i], [&](const RowResult& each) {
        rows[i] = {slope_of(each.row, at), std::log(each.row.step_s)};
      });
      progress.one_more();
    });
    Constants out = at;
    const Constants changes = least_absolute(rows);
    for (size_t c = 0; c < kConstants; ++c) out[c] *= std::exp(changes[c]);
    return out;
  }

  void predict(const Group& group, const Constants& constants, Progress& progress) {
    for_each_index(group.own.size(), [&](size_t i) {
      try_row(group.own[i], [&](RowResult& each) {
        each.fitted = !group.of_fit.empty();
        each.predicted_s =
            predicted_step_s(each.row, each.fitted ? constants : shipped_constants(each.row));
      });
      progress.one_more();
    });
  }

  Fit fit_;
  std::vector<RowResult> results_;
  std::vector<Group> groups_;
};

constexpr int kHostConstants = 3;  // of ProgramKernels, where its host is what steps wait for

// Of the machine's file: those whose source says so.
int fitted_constants(const std::string& machine) {
  int out = 0;
  if (!is_machine(machine)) return out;
  const Rates rates = machine_rates(machine);
  for (const auto& [key, source] : rates.sources) {
    // A dtype that is "as bf16" is none of its own.
    out += source.starts_with("fitted");
  }
  return out;
}

double at_share(const std::vector<double>& sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - std::floor(place)) * (sorted[above] - sorted[below]);
}

std::vector<SetResult> sets_of(const std::vector<RowResult>& rows) {
  std::vector<SetResult> sets;
  std::map<std::string, std::vector<double>> errors;
  for (const RowResult& each : rows) {
    auto set = std::find_if(sets.begin(), sets.end(), [&](const SetResult& other) {
      return other.name == each.row.set && other.machine == each.row.machine;
    });
    if (set == sets.end()) {
      const ProgramKernels* const program = program_of(each.row.set);
      sets.push_back({
          .name = each.row.set,
          .machine = each.row.machine,
          .kernels = program ? std::string(program->name) : "ours",
      });
      set = std::prev(sets.end());
    }
    ++set->rows;
    if (!each.skipped.empty()) continue;
    ++set->usable;
    set->fitted = each.fitted;
    const int host =
        program_of(set->name) && program_of(set->name)->host_us > 0 ? kHostConstants : 0;
    set->constants =
        each.fitted ? static_cast<int>(kConstants) + host : fitted_constants(set->machine) + host;
    errors[set->name + " on " + set->machine].push_back(std::abs(each.error()));
    if (!set->worst.empty() && std::abs(each.error()) <= std::abs(set->worst_error)) continue;
    set->worst = each.row.place();
    set->worst_error = each.error();
  }
  for (SetResult& set : sets) {
    std::vector<double>& all = errors[set.name + " on " + set.machine];
    if (all.empty()) continue;
    std::sort(all.begin(), all.end());
    set.median = at_share(all, 0.5);
    set.p90 = at_share(all, 0.9);
    set.within_10 = static_cast<double>(std::count_if(all.begin(), all.end(),
                                                      [](double error) { return error <= 0.1; })) /
                    static_cast<double>(all.size());
  }
  return sets;
}

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

}  // namespace

Validation validate(const std::vector<PublishedRow>& rows, Fit fit,
                    const std::function<void(int64_t, int64_t)>& progress) {
  Validation out = {.fit = fit};
  out.rows = Validator(rows, fit).run(progress);
  out.sets = sets_of(out.rows);
  return out;
}

std::string format_validation(const Validation& validation) {
  TextTable table = {.heads = {"set", "machine", "kernels of", "rows", "usable", "median", "90th",
                               "within 10 %", "constants", "worst row"},
                     .rows = {}};
  for (const SetResult& set : validation.sets) {
    const bool any = set.usable > 0;
    table.rows.push_back(
        {set.name, set.machine, set.kernels, std::to_string(set.rows), std::to_string(set.usable),
         any ? percent(set.median) : "-", any ? percent(set.p90) : "-",
         any ? percent(set.within_10) : "-", std::to_string(set.constants),
         any ? fmt::format("{} {:+.1f} %", set.worst, 100 * set.worst_error) : "-"});
  }
  std::map<std::string, int> reasons;
  for (const RowResult& each : validation.rows) {
    if (!each.skipped.empty()) ++reasons[each.skipped];
  }
  std::string out = side_by_side(table) + "errors: of a step's time; + is predicted too slow\n";
  for (const SetResult& set : validation.sets) {
    if (validation.fit == Fit::kNone || set.fitted || set.usable == 0) continue;
    out += fmt::format(
        "{} is not fitted: there are no other rows; constants are the machine's file's\n",
        set.name);
  }
  for (const auto& [reason, count] : reasons) {
    out += fmt::format("{} skipped: {}\n", count, reason);
  }
  return out;
}

Json validation_json(const Validation& validation) {
  Json sets(Json::Array{}), rows(Json::Array{});
  for (const SetResult& set : validation.sets) {
    sets.push_back({{"name", set.name},
                    {"machine", set.machine},
                    {"kernels", set.kernels},
                    {"rows", set.rows},
                    {"usable", set.usable},
                    {"median", set.median},
                    {"p90", set.p90},
                    {"within_10", set.within_10},
                    {"constants", set.constants},
                    {"fitted", set.fitted},
                    {"worst", {{"line", set.worst}, {"error", set.worst_error}}}});
  }
  for (const RowResult& each : validation.rows) {
    const bool there = each.skipped.empty();
    rows.push_back({{"set", each.row.set},
                    {"line", each.row.place()},
                    {"predicted_s", there ? Json(each.predicted_s) : Json(nullptr)},
                    {"measured_s", each.row.step_s},
                    {"error", there ? Json(each.error()) : Json(nullptr)},
                    {"skipped", there ? Json(nullptr) : Json(each.skipped)}});
  }
  return {{"sets", sets}, {"rows", rows}};
}

}  // namespace fsdp::tools
