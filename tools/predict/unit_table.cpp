// The plan's numbers and the tables.
#include "tools/predict/unit_table.h"

#include <algorithm>
#include <map>

#include "core/flat_layout.h"
#include "models/block.h"
#include "models/causal_lm.h"
#include "tools/predict/pytorch_shards.h"

namespace fsdp::tools {
namespace {

// Of the masters; a frozen parameter is its own.
int64_t shard_bytes(const UnitRow& unit) {
  const DType param_dtype = unit.policy.param_dtype;
  int64_t bytes = 0;
  for (const SegmentExtent& s : unit.segments) {
    bytes += bytes_of(s.shard_numel, s.trainable ? unit.policy.master_dtype : param_dtype);
  }
  return bytes;
}

struct AlikeUnits {
  std::string name;  // "blocks.0 .. blocks.3"
  const UnitRow* unit;
  size_t count;
};

bool alike(const UnitRow& a, const UnitRow& b) {
  return a.shapes == b.shapes && a.segments == b.segments && a.policy == b.policy;
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

int64_t bytes_of(int64_t numel, DType dtype) {
  return numel * static_cast<int64_t>(size_of(dtype));
}

std::string mib(int64_t bytes) {
  return fmt::format("{:.2f}", static_cast<double>(bytes) / (1 << 20));
}

int64_t UnitRow::shard_numel() const {
  int64_t sum = 0;
  for (const SegmentExtent& s : segments) sum += s.shard_numel;
  return sum;
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

// Where modules come in the order of use, and what follows for their gradients.
class UseOrder {
 public:
  explicit UseOrder(Module& root) : modules_(modules_in_order_of_use(root)) {
    for (size_t i = 0; i < modules_.size(); ++i) places_[modules_[i]] = i;
    trained_before_.push_back(0);
    for (const Module* m : modules_) {
      const auto& own = m->own_parameters();
      trained_before_.push_back(
          trained_before_.back() +
          std::count_if(own.begin(), own.end(), [](const Parameter* p) { return p->trainable(); }));
    }
    for (Module* m : modules_) {
      const auto* block = dynamic_cast<const models::Block*>(m);
      const bool again = block && block->recompute_mode() == RecomputeMode::kFull;
      if (!again || !output_has_gradient(*m)) continue;
      for (const Module* inside : m->modules()) recomputed_[inside] = place(m);
    }
  }

  void describe(Module& module, UnitRow& row) const {
    const std::vector<Module*> inside = module.modules();
    row.place = place(&module);
    row.is_table = is_table(&module);
    // Tables take tokens.
    row.input_has_gradient = trained_before_[places_.at(&module)] > 0 &&
                             std::none_of(inside.begin(), inside.end(), is_table);
    row.backward_comes = output_has_gradient(module);
    const auto block = recomputed_.find(&module);
    if (block != recomputed_.end()) row.recomputed_block = block->second;
  }

 private:
  int64_t place(const Module* module) const { return static_cast<int64_t>(places_.at(module)); }
  // Something in it or before it is trained.
  bool output_has_gradient(Module& module) const {
    return trained_before_[places_.at(&module) + module.modules().size()] > 0;
  }

  std::vector<Module*> modules_;  // parents first
  std::map<const Module*, size_t> places_;
  std::vector<int64_t> trained_before_;          // parameters, by place
  std::map<const Module*, int64_t> recomputed_;  // see UnitRow
};

}  // namespace

std::vector<UnitRow> unit_rows(Module& root, const comm::WrapPolicy& wrap,
                               const comm::FsdpOptions& options, comm::GroupSizes groups) {
  std::vector<UnitRow> rows;
  const UseOrder order(root);
  const std::vector<comm::PlannedUnit> units = comm::plan_units(root, wrap);
  const std::vector<comm::UnitPolicy> policies = comm::unit_policies(options, units, groups);
  for (size_t i = 0; i < units.size(); ++i) {
    const comm::PlannedUnit& unit = units[i];
    UnitRow row = {.name = unit.name, .depth = unit.depth, .policy = policies[i]};
    for (const Parameter* p : unit.parameters) {
      row.shapes.push_back(p->shape());
      if (p->trainable()) row.trained.push_back(p);
    }
    order.describe(*unit.module, row);
    for (const bool trainable : {true, false}) {
      std::vector<Parameter*> segment;
      for (Parameter* p : unit.parameters) {
        if (p->trainable() == trainable) segment.push_back(p);
      }
      if (segment.empty()) continue;
      const FlatLayout layout(segment, groups.shards, row.policy.alignment);
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
                       int shards, const models::ModelConfig& model,
                       const optim::OptimizerOptions& optimizer, int64_t positions) {
  MemoryPlan plan = {.shards = shards, .options = options, .optimizer = optimizer};
  for (const UnitRow& unit : units) {
    if (unit.segments.empty()) continue;
    plan.units.push_back({unit.segments, unit.depth, unit.policy});
    plan.norm_blocks += unit.norm_blocks;
    add_wide_gradients(unit.trained, unit.policy, model, positions, plan.wide);
  }
  return plan;
}

// ---------------------------------------------------------------------------- Tables

namespace {

// What a unit does otherwise than all: "parameters in f32, kept after forward".
std::string differences(const comm::UnitPolicy& unit, const comm::UnitPolicy& all) {
  std::vector<std::string> out;
  if (unit.param_dtype != all.param_dtype) {
    out.push_back(fmt::format("parameters in {}", name_of(unit.param_dtype)));
  }
  if (unit.reduce_dtype != all.reduce_dtype) {
    out.push_back(fmt::format("reduced in {}", name_of(unit.reduce_dtype)));
  }
  const bool kept = unit.keeps_parameters;
  if (kept != all.keeps_parameters) {
    out.push_back(kept ? "kept after forward" : "given back after forward");
  }
  if (unit.inner_group != all.inner_group && !kept) {
    out.push_back(unit.inner_group > 0 ? fmt::format("kept by groups of {}", unit.inner_group)
                                       : "kept by no group");
  }
  if (unit.keeps_gradients != all.keeps_gradients) {
    out.push_back(unit.keeps_gradients ? "gradients whole" : "gradients sharded");
  }
  return fmt::format("{}", fmt::join(out, ", "));
}

}  // namespace

std::string format_units(const std::vector<UnitRow>& units, const comm::FsdpOptions& options,
                         comm::GroupSizes groups) {
  const int shards = groups.shards;
  std::string out =
      fmt::format("{:<26} {:>7} {:>13} {:>9} {:>15} {:>11} {:>13}\n", "units", "tensors",
                  "parameters", "padding", "per rank", "shard MiB", "gathered MiB");
  struct Sums {
    size_t tensors = 0;
    int64_t parameters = 0, shard = 0, shard_bytes = 0, gathered_bytes = 0;
  } all;
  const auto line = [&](const std::string& name, const Sums& s, const std::string& differs) {
    out += fmt::format("  {:<24} {:>7} {:>13} {:>9} {:>15} {:>11} {:>13}{}{}\n", name, s.tensors,
                       s.parameters, s.shard * shards - s.parameters, s.shard, mib(s.shard_bytes),
                       mib(s.gathered_bytes), differs.empty() ? "" : "  ", differs);
  };
  for (const auto& [name, unit, count] : alike_units(units)) {
    const int64_t shard = unit->shard_numel();
    const Sums one = {unit->shapes.size(), unit->parameters, shard, shard_bytes(*unit),
                      bytes_of(shard * shards, unit->policy.param_dtype)};
    line(name, one,
         differences(unit->policy, comm::unit_policy(options, groups, unit->depth == 0)));
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
    return fmt::format("  {:<24} {:>15} {:>15} {:>17}\n", name, a, b, c);
  };
  std::string out = fmt::format("elements per rank in PyTorch FSDP{}\n", first ? 1 : 2);
  out += first ? row("", "here", "flat", "use_orig_params") : row("", "here", "padded", "held");
  const auto width = static_cast<int64_t>(size_of(dtype));
  for (const auto& [name, unit, count] : alike_units(units)) {
    if (first) {
      out += row(name, unit->shard_numel(), fsdp1_shard(unit->shapes, shards),
                 fsdp1_original_shard(unit->shapes, shards, width));
      continue;
    }
    const Fsdp2Shards theirs = fsdp2_shards(unit->shapes, shards);
    const auto [least, most] = std::minmax_element(theirs.held.begin(), theirs.held.end());
    out += row(name, unit->shard_numel(), theirs.padded, fmt::format("{} to {}", *least, *most));
  }
  return out;
}

}  // namespace fsdp::tools
