// The rules of the schedule, and the texts.
#include "tools/predict/unit_timeline.h"

#include <algorithm>
#include <map>

#include "comm/fsdp/unit_parameters.h"

namespace fsdp::tools {
namespace {

constexpr size_t kRoot = 0;

// The hooks of FullySharded over again, under their names; its schedule says why.
class Schedule {
 public:
  Schedule(const std::vector<UnitRow>& units, const comm::FsdpOptions& options,
           comm::GroupSizes groups)
      : units_(units),
        options_(options),
        groups_(groups),
        inside_(units.size()),
        states_(units.size(), groups.shards == 1 ? State::kUnsharded : State::kSharded) {
    std::vector<size_t> around;  // by depth
    for (size_t u = 0; u < units.size(); ++u) {
      const size_t depth = depth_of(u);
      around.resize(depth);
      if (u != kRoot) inside_[around.back()].push_back(u);
      around.push_back(u);
      free_.resize(std::max(free_.size(), depth + 1), options.units_in_flight);
      free_[depth] += policy(u).keeps_parameters && borrows(u);
    }
    const auto used_before = [&](size_t a, size_t b) { return units[a].place < units[b].place; };
    for (auto& inner : inside_) std::stable_sort(inner.begin(), inner.end(), used_before);
    list_orders(kRoot);
    std::reverse(backward_.begin(), backward_.end());
  }

  std::vector<StepRow> micro_step(bool last) {
    last_ = last;
    rows_.clear();
    reduced_.assign(units_.size(), false);
    in_backward_ = false;
    forward(kRoot);
    in_backward_ = true;
    backward(kRoot);
    finish_backward();
    return rows_;
  }

 private:
  using State = comm::ParameterState;

  // Those in which forwards begin, and end.
  void list_orders(size_t unit) {
    forward_.push_back(unit);
    for (const size_t inner : inside_[unit]) list_orders(inner);
    if (units_[unit].backward_comes) backward_.push_back(unit);
  }

  // Also again, in backward: see compute_forward().
  void forward(size_t unit) {
    demand(unit);
    auto next = std::find(forward_.begin(), forward_.end(), unit);
    for (int ahead = 1; !in_backward_ && ahead <= options_.forward_prefetch; ++ahead) {
      if (++next == forward_.end()) break;
      prefetch(*next);
    }
    compute_forward(unit);
    if (policy(unit).reshards_after_forward) reshard(unit);
  }

  void compute_forward(size_t unit) {
    const char* const pass = in_backward_ ? "recompute" : "forward";
    compute(pass, unit, "before");
    for (const size_t inner : inside_[unit]) forward(inner);
    if (!inside_[unit].empty()) compute(pass, unit, "after");
  }

  void backward(size_t unit) {
    using comm::BackwardPrefetch;
    position_ = std::find(backward_.begin(), backward_.end(), unit) - backward_.begin();
    demand(unit);
    if (options_.backward_prefetch == BackwardPrefetch::kPre) prefetch(backward_next());
    if (is_recomputed_block(unit)) compute_forward(unit);
    compute("backward", unit, "after");
    for (size_t i = inside_[unit].size(); i-- > 0;) {
      recompute_block_ending_with(unit, i);
      const size_t inner = inside_[unit][i];
      if (units_[inner].backward_comes) backward(inner);
    }
    if (!inside_[unit].empty()) compute("backward", unit, "before");
    if (unit == kRoot || !units_[unit].input_has_gradient) return;
    give_back(unit);
    if (options_.backward_prefetch == BackwardPrefetch::kPost) prefetch(backward_next());
    reduce(unit);
  }

  bool is_recomputed_block(size_t unit) const {
    return units_[unit].recomputed_block == units_[unit].place;
  }

  // Units of a block that is no unit itself: all of them, before the backward of the last one.
  void recompute_block_ending_with(size_t unit, size_t last) {
    const std::vector<size_t>& inside = inside_[unit];
    const auto block = units_[inside[last]].recomputed_block;
    const auto same = [&](size_t u) { return units_[u].recomputed_block == block; };
    const bool ends = last + 1 == inside.size() || !same(inside[last + 1]);
    if (!block || !ends || same(unit) || is_recomputed_block(inside[last])) return;
    for (const size_t inner : inside) {
      if (same(inner)) forward(inner);
    }
  }

  // Units that did not notice the end of their backward, and the root.
  void finish_backward() {
    in_backward_ = false;
    for (size_t unit = units_.size(); unit-- > 0;) {
      if (units_[unit].backward_comes && !reduced_[unit]) reduce(unit);
      give_back(unit);
    }
    if (!row_.gathers.empty() || !row_.reduces.empty()) close_row("", kRoot);
  }

  size_t backward_next() const {
    const auto next = static_cast<size_t>(position_) + 1;
    return next < backward_.size() ? backward_[next] : kRoot;  // which is not prefetched
  }

  void demand(size_t unit) {
    if (states_[unit] == State::kSharded) {
      if (!unshard(unit)) {
        for (size_t other = 0; other < units_.size(); ++other) {
          const bool unused = states_[other] == State::kGathering;
          if (depth_of(other) == depth_of(unit) && (in_backward_ || unused)) reshard(other);
        }
        unshard(unit);
      }
      if (!row_.gathers.empty()) close_row("", unit);
    }
    states_[unit] = State::kUnsharded;
  }

  void prefetch(size_t unit) {
    if (unit != kRoot) unshard(unit);
  }

  bool unshard(size_t unit) {
    if (states_[unit] != State::kSharded) return true;
    if (borrows(unit)) {
      if (free_[depth_of(unit)] == 0) return false;
      --free_[depth_of(unit)];
    }
    states_[unit] = State::kGathering;
    for (const SegmentExtent& s : units_[unit].segments) {
      row_.gathers.push_back(
          {unit, "all_gather", bytes_of(s.shard_numel * groups_.shards, policy(unit).param_dtype)});
    }
    return true;
  }

  void reshard(size_t unit) {
    if (!borrows(unit) || states_[unit] == State::kSharded) return;
    ++free_[depth_of(unit)];
    states_[unit] = State::kSharded;
  }

  void give_back(size_t unit) {
    if (last_ || !policy(unit).keeps_parameters) reshard(unit);
  }

  // A buffer of its depth's arena.
  bool borrows(size_t unit) const {
    return !policy(unit).resident && !units_[unit].segments.empty();
  }

  const comm::UnitPolicy& policy(size_t unit) const { return units_[unit].policy; }

  size_t depth_of(size_t unit) const { return static_cast<size_t>(units_[unit].depth); }

  void reduce(size_t unit) {
    reduced_[unit] = true;
    if (policy(unit).reduces_last && !last_) return;
    for (const SegmentExtent& s : units_[unit].segments) {
      if (!s.trainable) continue;
      const int64_t shard = bytes_of(s.shard_numel, policy(unit).reduce_dtype);
      const auto add = [&](const char* kind, int64_t bytes) {
        row_.reduces.push_back({unit, kind, bytes});
      };
      if (policy(unit).reduces_over_all) {
        add("all_reduce", shard * groups_.shards);
        continue;
      }
      if (groups_.shards > 1) add("reduce_scatter", shard * groups_.shards);
      if (groups_.replicas > 1 && (last_ || !policy(unit).defers_replicas))
        add("all_reduce", shard);
    }
  }

  // `part`: of the units inside, if there are any.
  void compute(const char* pass, size_t unit, const char* part) {
    std::string text = fmt::format("{} {}", pass, units_[unit].name);
    if (!inside_[unit].empty()) {
      text += fmt::format(", {} {}", part, unit == kRoot ? "the blocks" : "what is inside");
    }
    close_row(std::move(text), unit);
  }

  void close_row(std::string text, size_t unit) {
    row_.compute = std::move(text);
    row_.unit = unit;
    rows_.push_back(std::move(row_));
    row_ = {};
  }

  const std::vector<UnitRow>& units_;
  const comm::FsdpOptions& options_;
  comm::GroupSizes groups_;
  std::vector<std::vector<size_t>> inside_;  // the units directly inside each
  std::vector<int> free_;                    // buffers of the arena, by depth
  std::vector<State> states_;
  std::vector<bool> reduced_;
  std::vector<size_t> forward_, backward_;  // units in the order of theirs
  std::ptrdiff_t position_ = 0;             // in it, of the last that began
  bool last_ = true, in_backward_ = false;
  StepRow row_;
  std::vector<StepRow> rows_;
};

}  // namespace

bool has_timeline(const std::vector<UnitRow>& units) {
  return std::count_if(units.begin(), units.end(), [](const UnitRow& u) { return u.is_table; }) < 2;
}

std::vector<std::vector<StepRow>> step_timeline(const std::vector<UnitRow>& units,
                                                const comm::FsdpOptions& options,
                                                comm::GroupSizes groups) {
  Schedule schedule(units, options, groups);
  std::vector<std::vector<StepRow>> out;
  for (int i = 0; i < options.micro_steps; ++i) {
    out.push_back(schedule.micro_step(i + 1 == options.micro_steps));
  }
  return out;
}

std::string format_traffic(const std::vector<std::vector<StepRow>>& micro_steps) {
  struct Total {
    int64_t calls = 0, bytes = 0;
  };
  std::map<std::string, Total> totals;
  for (const auto& rows : micro_steps) {
    for (const StepRow& row : rows) {
      for (const auto* calls : {&row.gathers, &row.reduces}) {
        for (const PlannedCall& call : *calls) {
          ++totals[call.kind].calls;
          totals[call.kind].bytes += call.bytes;
        }
      }
    }
  }
  std::string out = fmt::format("{:<26}{:>8}{:>14}\n", "collectives of a step", "calls", "MiB");
  for (const auto& [kind, total] : totals) {
    out += fmt::format("  {:<24}{:>8}{:>14}\n", kind, total.calls, mib(total.bytes));
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
  std::string out = fmt::format("  {:<26}{:<36}{}\n", "gather", "compute", "reduce");
  bool gap = false;
  for (const StepRow& row : rows) {
    const bool middle = row.unit > kShown && row.unit + kShown < units.size();
    if (middle && !gap) out += "  ...\n";
    gap = middle;
    if (middle) continue;
    const bool waits = row.compute.empty() && !row.gathers.empty();
    std::string line =
        fmt::format("  {:<26}{:<36}{}", names(row.gathers),
                    waits ? "(waits for the gather)" : row.compute, names(row.reduces));
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return out;
}

}  // namespace fsdp::tools
