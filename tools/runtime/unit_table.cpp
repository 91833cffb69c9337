// The plan's numbers, the rules of the schedule, and the tables.
#include "tools/runtime/unit_table.h"

#include <algorithm>
#include <map>

#include "comm/fsdp/pytorch_shards.h"
#include "core/flat_layout.h"
#include "models/causal_lm.h"

namespace fsdp::tools {
namespace {

constexpr size_t kRoot = 0;

int64_t bytes_of(int64_t numel, DType dtype) {
  return numel * static_cast<int64_t>(size_of(dtype));
}

std::string mib(int64_t bytes) {
  return fmt::format("{:.2f}", static_cast<double>(bytes) / (1 << 20));
}

// Repeats the hooks of FullySharded; see its schedule.
class Schedule {
 public:
  Schedule(const std::vector<UnitRow>& units, const comm::FsdpOptions& options, GroupSizes groups)
      : units_(units),
        options_(options),
        groups_(groups),
        inside_(units.size()),
        held_(units.size(), groups.shards == 1) {
    std::vector<size_t> around;  // by depth
    for (size_t u = 0; u < units.size(); ++u) {
      const auto depth = static_cast<size_t>(units[u].depth);
      around.resize(depth);
      if (u != kRoot) inside_[around.back()].push_back(u);
      around.push_back(u);
      free_.resize(std::max(free_.size(), depth + 1), options.units_in_flight);
    }
    const auto used_before = [&](size_t a, size_t b) { return units[a].place < units[b].place; };
    for (auto& inner : inside_) std::stable_sort(inner.begin(), inner.end(), used_before);
    list_orders(kRoot);
    std::reverse(backward_.begin(), backward_.end());
  }

  std::vector<StepRow> micro_step(bool last) {
    last_ = last;
    rows_.clear();
    begun_.assign(units_.size(), false);
    forward(kRoot);
    begun_.assign(units_.size(), false);
    reduced_.assign(units_.size(), false);
    backward(kRoot);
    finish_backward();
    return rows_;
  }

 private:
  // Those in which forwards begin, and end.
  void list_orders(size_t unit) {
    forward_.push_back(unit);
    for (const size_t inner : inside_[unit]) list_orders(inner);
    if (units_[unit].backward_comes) backward_.push_back(unit);
  }

  void forward(size_t unit) {
    begun_[unit] = true;
    demand(unit);
    auto next = std::find(forward_.begin(), forward_.end(), unit);
    for (int ahead = 1; ahead <= options_.forward_prefetch && ++next != forward_.end(); ++ahead) {
      prefetch(*next);
    }
    compute("forward", unit, "before");
    for (const size_t inner : inside_[unit]) forward(inner);
    if (!inside_[unit].empty()) compute("forward", unit, "after");
    if (unit != kRoot) give_back(unit);
  }

  void backward(size_t unit) {
    using comm::BackwardPrefetch;
    position_ = std::find(backward_.begin(), backward_.end(), unit) - backward_.begin();
    begun_[unit] = true;
    demand(unit);
    if (options_.backward_prefetch == BackwardPrefetch::kPre) prefetch(backward_next());
    compute("backward", unit, "after");
    for (size_t i = inside_[unit].size(); i-- > 0;) {
      if (units_[inside_[unit][i]].backward_comes) backward(inside_[unit][i]);
    }
    if (!inside_[unit].empty()) compute("backward", unit, "before");
    if (unit == kRoot || !units_[unit].input_has_gradient) return;
    give_back(unit);
    if (options_.backward_prefetch == BackwardPrefetch::kPost) prefetch(backward_next());
    reduce(unit);
  }

  // Units that did not notice the end of their backward, and the root.
  void finish_backward() {
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
    if (held_[unit]) return;
    if (!gather(unit)) {
      const bool in_backward = begun_[kRoot] && !reduced_.empty();
      for (size_t other = 1; other < units_.size(); ++other) {
        const bool done = in_backward && units_[other].depth == units_[unit].depth;
        if (other != unit && (done || !begun_[other])) give_back(other);
      }
      gather(unit);
    }
    close_row("", unit);
  }

  void prefetch(size_t unit) {
    if (unit != kRoot && !held_[unit]) gather(unit);
  }

  // The root has memory of its own; units of one depth share an arena, and a prefetch may find none
  // left.
  bool gather(size_t unit) {
    if (needs_buffer(unit)) {
      int& left = free_[static_cast<size_t>(units_[unit].depth)];
      if (left == 0) return false;
      --left;
    }
    held_[unit] = true;
    for (const SegmentExtent& s : units_[unit].segments) {
      row_.gathers.push_back(
          {unit, "all_gather",
           bytes_of(s.shard_numel * groups_.shards, units_[unit].options.param_dtype)});
    }
    return true;
  }

  bool needs_buffer(size_t unit) const {
    return !kept(unit) && unit != kRoot && !units_[unit].segments.empty();
  }

  bool kept(size_t unit) const {
    return comm::keeps_parameters(units_[unit].options, groups_.shards);
  }

  void give_back(size_t unit) {
    if (kept(unit) || !held_[unit]) return;
    held_[unit] = false;
    if (needs_buffer(unit)) ++free_[static_cast<size_t>(units_[unit].depth)];
  }

  void reduce(size_t unit) {
    reduced_[unit] = true;
    if (comm::reduces_last(options_) && !last_) return;
    const bool defer_replicas =
        options_.accumulation == comm::Accumulation::kReduceScatterEach && !last_;
    for (const SegmentExtent& s : units_[unit].segments) {
      if (!s.trainable) continue;
      const int64_t shard = bytes_of(s.shard_numel, units_[unit].options.reduce_dtype);
      const auto add = [&](const char* kind, int64_t bytes) {
        row_.reduces.push_back({unit, kind, bytes});
      };
      const bool both = groups_.shards > 1 && groups_.replicas > 1;
      if (both && options_.fixed_order) {
        add("all_reduce", shard * groups_.shards);
        continue;
      }
      if (groups_.shards > 1) add("reduce_scatter", shard * groups_.shards);
      if (groups_.replicas > 1 && !defer_replicas) add("all_reduce", shard);
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
  GroupSizes groups_;
  std::vector<std::vector<size_t>> inside_;  // the units directly inside each
  std::vector<int> free_;                    // buffers of the arena, by depth
  std::vector<bool> held_, begun_, reduced_;
  std::vector<size_t> forward_, backward_;  // units in the order of theirs
  std::ptrdiff_t position_ = 0;             // in it, of the last that began
  bool last_ = true;
  StepRow row_;
  std::vector<StepRow> rows_;
};

// Of the masters; a frozen parameter is its own.
int64_t shard_bytes(const UnitRow& unit) {
  const DType param_dtype = unit.options.param_dtype;
  int64_t bytes = 0;
  for (const SegmentExtent& s : unit.segments) {
    bytes += bytes_of(s.shard_numel, s.trainable ? accumulation_dtype(param_dtype) : param_dtype);
  }
  return bytes;
}

struct AlikeUnits {
  std::string name;  // "blocks.0 .. blocks.3"
  const UnitRow* unit;
  size_t count;
};

bool alike(const UnitRow& a, const UnitRow& b) {
  return a.shapes == b.shapes && a.segments == b.segments && a.options == b.options;
}

// Neighbours that are alike, together.
std::vector<AlikeUnits> alike_units(const std::vector<UnitRow>& units) {
  std::vector<AlikeUnits> out;
  for (const UnitRow& unit : units) {
    if (!out.empty() && alike(*out.back().unit, unit)) {
      ++out.back().count;
      out.back().name = fmt::format("{} .. {}", out.back().unit->name, unit.name);
    } else {
      out.push_back({unit.name, &unit, 1});
    }
  }
  return out;
}

}  // namespace

int64_t UnitRow::shard_numel() const {
  int64_t sum = 0;
  for (const SegmentExtent& s : segments) sum += s.shard_numel;
  return sum;
}

GroupSizes group_sizes(const comm::FsdpOptions& options, int world) {
  const int shards = comm::shard_group_size(options, world);
  return {shards, world / shards};
}

namespace {

bool is_table(const Module* module) { return module->class_name() == "Embedding"; }

// A block is registered in the order of its family's files and used in that of models/block.cpp.
void list_in_order_of_use(Module& module, bool parallel_residual, std::vector<Module*>& out) {
  out.push_back(&module);
  const auto place = [&](const Module* child) {
    const std::string part = child->name().substr(child->name().rfind('.') + 1);
    if (part == "attention") return 2;
    if (part == "mlp_norm") return parallel_residual ? 1 : 3;
    return part == "mlp" ? 4 : 0;
  };
  std::vector<Module*> children = module.children();
  std::stable_sort(children.begin(), children.end(),
                   [&](const Module* a, const Module* b) { return place(a) < place(b); });
  for (Module* child : children) list_in_order_of_use(*child, parallel_residual, out);
}

std::vector<Module*> modules_in_order_of_use(Module& root) {
  const auto* model = dynamic_cast<const models::CausalLM*>(&root);
  std::vector<Module*> out;
  list_in_order_of_use(root, model && model->config().parallel_residual, out);
  return out;
}

// Whether its output and its input need gradients: something in it or before it, or before it, is
// trained. Tables take tokens.
void note_use(const std::vector<Module*>& in_order, Module& module, UnitRow& row) {
  const std::vector<Module*> modules = module.modules();
  const auto first = std::find(in_order.begin(), in_order.end(), &module);
  const auto trains = [](const Module* m) {
    const auto& own = m->own_parameters();
    return std::any_of(own.begin(), own.end(), [](const Parameter* p) { return p->trainable(); });
  };
  const bool before = std::any_of(in_order.begin(), first, trains);
  row.place = first - in_order.begin();
  row.is_table = is_table(&module);
  row.input_has_gradient = before && std::none_of(modules.begin(), modules.end(), is_table);
  row.backward_comes = before || std::any_of(modules.begin(), modules.end(), trains);
}

}  // namespace

std::vector<UnitRow> unit_rows(Module& root, const comm::WrapPolicy& wrap,
                               const comm::FsdpOptions& options, int shards) {
  std::vector<UnitRow> rows;
  const std::vector<Module*> in_order = modules_in_order_of_use(root);
  const std::vector<comm::PlannedUnit> units = comm::plan_units(root, wrap);
  const std::vector<comm::FsdpOptions> own_options = comm::unit_options(options, units);
  for (size_t i = 0; i < units.size(); ++i) {
    const comm::PlannedUnit& unit = units[i];
    UnitRow row = {.name = unit.name, .depth = unit.depth, .options = own_options[i]};
    for (const Parameter* p : unit.parameters) row.shapes.push_back(p->shape());
    note_use(in_order, *unit.module, row);
    for (const bool trainable : {true, false}) {
      std::vector<Parameter*> segment;
      for (Parameter* p : unit.parameters) {
        if (p->trainable() == trainable) segment.push_back(p);
      }
      if (segment.empty()) continue;
      const FlatLayout layout(segment, shards, options.fixed_order ? kNormBlock : kFlatAlignment);
      row.parameters += layout.parameter_numel();
      if (trainable && options.fixed_order) row.norm_blocks = layout.blocks();
      row.segments.push_back(
          {layout.shard_numel(), static_cast<int64_t>(segment.size()), trainable});
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

MemoryPlan memory_plan(const std::vector<UnitRow>& units, const comm::FsdpOptions& options,
                       int shards, const WideGradients& wide) {
  MemoryPlan plan = {.shards = shards, .options = options, .wide = wide};
  for (const UnitRow& unit : units) {
    if (unit.segments.empty()) continue;
    plan.units.push_back({unit.segments, unit.depth, unit.options});
    plan.norm_blocks += unit.norm_blocks;
  }
  return plan;
}

bool has_timeline(const std::vector<UnitRow>& units) {
  return std::count_if(units.begin(), units.end(), [](const UnitRow& u) { return u.is_table; }) < 2;
}

std::vector<std::vector<StepRow>> step_timeline(const std::vector<UnitRow>& units,
                                                const comm::FsdpOptions& options,
                                                GroupSizes groups) {
  Schedule schedule(units, options, groups);
  std::vector<std::vector<StepRow>> out;
  for (int i = 0; i < options.micro_steps; ++i) {
    out.push_back(schedule.micro_step(i + 1 == options.micro_steps));
  }
  return out;
}

// ---------------------------------------------------------------------------- Tables

namespace {

// What a unit does otherwise than all: "parameters in f32, kept after forward".
std::string differences(const comm::FsdpOptions& unit, const comm::FsdpOptions& all, int shards) {
  std::vector<std::string> out;
  if (unit.param_dtype != all.param_dtype) {
    out.push_back(fmt::format("parameters in {}", name_of(unit.param_dtype)));
  }
  if (unit.reduce_dtype != all.reduce_dtype) {
    out.push_back(fmt::format("reduced in {}", name_of(unit.reduce_dtype)));
  }
  const bool kept = comm::keeps_parameters(unit, shards);
  if (kept != comm::keeps_parameters(all, shards)) {
    out.push_back(kept ? "kept after forward" : "given back after forward");
  }
  const int inner = comm::inner_group_size(unit, shards);
  if (inner != comm::inner_group_size(all, shards) && !kept) {
    out.push_back(inner > 0 ? fmt::format("kept by groups of {}", inner) : "kept by no group");
  }
  if (comm::keeps_gradients(unit, shards) != comm::keeps_gradients(all, shards)) {
    out.push_back(comm::keeps_gradients(unit, shards) ? "gradients whole" : "gradients sharded");
  }
  return fmt::format("{}", fmt::join(out, ", "));
}

}  // namespace

std::string format_units(const std::vector<UnitRow>& units, const comm::FsdpOptions& options,
                         int shards) {
  std::string out = fmt::format("{:<26}{:>8}{:>14}{:>10}{:>16}{:>12}{:>14}\n", "units", "tensors",
                                "parameters", "padding", "per rank", "shard MiB", "gathered MiB");
  struct Sums {
    size_t tensors = 0;
    int64_t parameters = 0, shard = 0, shard_bytes = 0, gathered_bytes = 0;
  } all;
  const auto line = [&](const std::string& name, const Sums& s, const std::string& differs) {
    out += fmt::format("  {:<24}{:>8}{:>14}{:>10}{:>16}{:>12}{:>14}{}{}\n", name, s.tensors,
                       s.parameters, s.shard * shards - s.parameters, s.shard, mib(s.shard_bytes),
                       mib(s.gathered_bytes), differs.empty() ? "" : "  ", differs);
  };
  for (const auto& [name, unit, count] : alike_units(units)) {
    const int64_t shard = unit->shard_numel();
    const Sums one = {unit->shapes.size(), unit->parameters, shard, shard_bytes(*unit),
                      bytes_of(shard * shards, unit->options.param_dtype)};
    line(name, one, differences(unit->options, options, shards));
    const auto times = static_cast<int64_t>(count);
    all.tensors += count * one.tensors;
    all.parameters += times * one.parameters;
    all.shard += times * one.shard;
    all.shard_bytes += times * one.shard_bytes;
    all.gathered_bytes += times * one.gathered_bytes;
  }
  line("all", all, "");
  return out;
}

std::string format_layout(const std::vector<UnitRow>& units, PyTorchLayout layout, int shards,
                          DType dtype) {
  const bool first = layout == PyTorchLayout::kFsdp1;
  const auto row = [](const std::string& name, const auto& a, const auto& b, const auto& c) {
    return fmt::format("  {:<24}{:>16}{:>16}{:>18}\n", name, a, b, c);
  };
  std::string out = fmt::format("elements per rank in PyTorch FSDP{}\n", first ? 1 : 2);
  out += first ? row("", "here", "flat", "use_orig_params") : row("", "here", "padded", "held");
  const auto width = static_cast<int64_t>(size_of(dtype));
  for (const auto& [name, unit, count] : alike_units(units)) {
    if (first) {
      out += row(name, unit->shard_numel(), comm::fsdp1_shard(unit->shapes, shards),
                 comm::fsdp1_original_shard(unit->shapes, shards, width));
      continue;
    }
    const comm::Fsdp2Shards theirs = comm::fsdp2_shards(unit->shapes, shards);
    const auto [least, most] = std::minmax_element(theirs.held.begin(), theirs.held.end());
    out += row(name, unit->shard_numel(), theirs.padded, fmt::format("{} to {}", *least, *most));
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
