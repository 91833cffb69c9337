// From calls to rows, and the texts.
#include "tools/predict/unit_timeline.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "tools/predict/unit_table.h"

namespace fsdp::tools {
namespace {

// A moment: to the last digit that a duration of the same step has.
std::string moment_text(double ms, double step_ms) {
  return fmt::format("{:.{}f}", ms, step_ms >= 1000 ? 0 : step_ms >= 10 ? 1 : 3);
}

// Of the collectives of a row that computes nothing.
double first_begin(const StepRow& row) {
  double begin_ms = std::numeric_limits<double>::infinity();
  for (const auto* calls : {&row.gathers, &row.reduces}) {
    for (const PlannedCall& call : *calls) begin_ms = std::min(begin_ms, call.begin_ms);
  }
  return begin_ms;
}
double last_end(const StepRow& row) {
  double end_ms = 0;
  for (const auto* calls : {&row.gathers, &row.reduces}) {
    for (const PlannedCall& call : *calls) end_ms = std::max(end_ms, call.end_ms);
  }
  return end_ms;
}

bool is_collective(const StepCall& call) {
  return call.name == "all_gather" || call.name == "reduce_scatter" || call.name == "all_reduce";
}

// Not what moves or rounds bytes beside the computation: a unit that only has its gradients set to
// zero or rounded is not computed with.
bool is_kernel(const StepCall& call) {
  static const std::set<std::string> kOthers = {"copy",      "copy_from_host", "copy_to_host",
                                                "read_file", "write_file",     "fill_zero",
                                                "cast",      "broadcast"};
  return !is_collective(call) && !kOthers.contains(call.name);
}

// The rows of one micro-step.
class Rows {
 public:
  explicit Rows(const std::vector<UnitRow>& units) : units_(&units) {
    for (size_t u = 0; u < units.size(); ++u) places_[units[u].name] = u;
  }

  void add(const StepCall& call) {
    const auto unit = places_.find(call.unit);
    if (unit == places_.end()) return;
    if (!call.computes) {
      if (!is_collective(call)) return;
      pending_.push_back({unit->second, call.name, call.bytes, call.begin_ms, call.end_ms});
    } else if (is_kernel(call)) {
      compute(call.phase, unit->second);
      StepRow& row = rows_.back();
      if (row.busy_ms == 0) row.begin_ms = call.begin_ms;
      row.end_ms = call.end_ms;
      row.busy_ms += call.end_ms - call.begin_ms;
    }
  }

  std::vector<StepRow> finish() {
    if (!pending_.empty()) close(pending_.size(), "", comm::kRootUnit);
    name_parts();
    return std::move(rows_);
  }

 private:
  void compute(const std::string& pass, size_t unit) {
    const bool goes_on = !rows_.empty() && rows_.back().pass == pass && rows_.back().unit == unit;
    if (goes_on) return;
    // Its own gather, if that comes only now: nothing overlaps it.
    const auto own = std::find_if(pending_.rbegin(), pending_.rend(), [&](const PlannedCall& c) {
      return c.unit == unit && c.kind == "all_gather";
    });
    if (own != pending_.rend()) close(static_cast<size_t>(pending_.rend() - own), "", unit);
    close(pending_.size(), pass, unit);
  }

  // The first `count` of the pending calls go into a row.
  void close(size_t count, const std::string& pass, size_t unit) {
    StepRow row = {.pass = pass, .unit = unit};
    for (size_t i = 0; i < count; ++i) {
      (pending_[i].kind == "all_gather" ? row.gathers : row.reduces).push_back(pending_[i]);
    }
    pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(count));
    rows_.push_back(std::move(row));
  }

  // "forward blocks.0, before what is inside": where units inside come before or after it.
  void name_parts() {
    for (size_t i = 0; i < rows_.size(); ++i) {
      StepRow& row = rows_[i];
      if (row.pass.empty()) continue;
      row.compute = fmt::format("{} {}", row.pass, (*units_)[row.unit].name);
      const size_t end = end_of_inner(row.unit);
      bool earlier = false, later = false;
      for (size_t j = 0; j < rows_.size(); ++j) {
        const bool inside = rows_[j].unit > row.unit && rows_[j].unit < end;
        if (inside && rows_[j].pass == row.pass) (j < i ? earlier : later) = true;
      }
      if (!earlier && !later) continue;
      const bool before = row.pass == "backward" ? !later : !earlier;
      const char* const part = earlier && later ? "between" : before ? "before" : "after";
      row.compute += fmt::format(", {} {}", part,
                                 row.unit == comm::kRootUnit ? "the blocks" : "what is inside");
    }
  }

  // Units inside a unit follow it.
  size_t end_of_inner(size_t unit) const {
    size_t end = unit + 1;
    while (end < units_->size() && (*units_)[end].depth > (*units_)[unit].depth) ++end;
    return end;
  }

  const std::vector<UnitRow>* units_;
  std::map<std::string, size_t> places_;
  std::vector<PlannedCall> pending_;  // issued, in no row yet
  std::vector<StepRow> rows_;
};

}  // namespace

std::vector<std::vector<StepRow>> step_timeline(const std::vector<StepCall>& calls,
                                                const std::vector<UnitRow>& units) {
  std::vector<std::vector<StepRow>> out;
  Rows rows(units);
  int64_t times = 1;
  bool in_backward = false;
  for (const StepCall& call : calls) {
    const bool forward = call.phase == "forward";
    const bool backward = call.phase == "backward" || call.phase == "recompute";
    if (!forward && !backward) continue;
    if (forward && in_backward) {
      out.insert(out.end(), static_cast<size_t>(times), rows.finish());
      rows = Rows(units);
    }
    in_backward = backward;
    times = call.times;
    rows.add(call);
  }
  out.push_back(rows.finish());
  return out;
}

StepTime step_time(const MetaRun& run) {
  StepTime time = {.step_ms = run.step_ms()};
  for (const StepCall& call : run.last_step()) {
    if (!call.computes) continue;
    const double ms = static_cast<double>(call.times) * (call.end_ms - call.begin_ms);
    (is_collective(call) ? time.scalars_ms : time.compute_ms) += ms;
  }
  time.wait_ms = time.step_ms - time.compute_ms - time.scalars_ms;
  return time;
}

std::string format_step_time(const StepTime& time) {
  return fmt::format(
      "predicted step: {} = {} computing + {} in sums of norms, flags and losses + {} waiting for "
      "gathers, reductions and the host\n",
      duration_text(1e-3 * time.step_ms), duration_text(1e-3 * time.compute_ms),
      duration_text(1e-3 * time.scalars_ms), duration_text(1e-3 * time.wait_ms));
}

std::string format_traffic(const std::vector<std::vector<StepRow>>& micro_steps) {
  struct Total {
    int64_t calls = 0, bytes = 0;
    double ms = 0;
  };
  std::map<std::string, Total> totals;
  for (const auto& rows : micro_steps) {
    for (const StepRow& row : rows) {
      for (const auto* calls : {&row.gathers, &row.reduces}) {
        for (const PlannedCall& call : *calls) {
          ++totals[call.kind].calls;
          totals[call.kind].bytes += call.bytes;
          totals[call.kind].ms += call.end_ms - call.begin_ms;
        }
      }
    }
  }
  std::string out =
      fmt::format("{:<26}{:>8}{:>14}{:>13}\n", "collectives of a step", "calls", "MiB", "take");
  for (const auto& [kind, total] : totals) {
    out += fmt::format("  {:<24}{:>8}{:>14}{:>13}\n", kind, total.calls, mib(total.bytes),
                       duration_text(1e-3 * total.ms));
  }
  return totals.empty() ? out + "  none\n" : out;
}

std::string format_timeline(const std::vector<UnitRow>& units, const std::vector<StepRow>& rows) {
  constexpr size_t kShown = 3;  // units at either end
  const auto names = [&](const std::vector<PlannedCall>& calls) {
    std::vector<std::string> out;
    for (const PlannedCall& call : calls) {
      const std::string& name = units[call.unit].name;
      const std::string text = call.kind == "all_reduce" ? name + " (all_reduce)" : name;
      if (out.empty() || out.back() != text) out.push_back(text);
    }
    return fmt::format("{}", fmt::join(out, ", "));
  };
  std::string out = fmt::format("  {:>10}{:>11}  {:<26}{:<36}{}\n", "from ms", "takes", "gather",
                                "compute", "reduce");
  double step_ms = 0;
  for (const StepRow& row : rows) step_ms = std::max({step_ms, row.end_ms, last_end(row)});
  bool gap = false;
  for (const StepRow& row : rows) {
    const bool middle = row.unit > kShown && row.unit + kShown < units.size();
    if (middle && !gap) out += "  ...\n";
    gap = middle;
    if (middle) continue;
    const bool waits = row.pass.empty() && !row.gathers.empty();
    const double begin_ms = row.pass.empty() ? first_begin(row) : row.begin_ms;
    const double takes_ms = row.pass.empty() ? last_end(row) - begin_ms : row.end_ms - begin_ms;
    std::string line =
        fmt::format("  {:>10}{:>11}  {:<26}{:<36}{}", moment_text(begin_ms, step_ms),
                    duration_text(1e-3 * takes_ms), names(row.gathers),
                    waits ? "(waits for the gather)" : row.compute, names(row.reduces));
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return out;
}

}  // namespace fsdp::tools
