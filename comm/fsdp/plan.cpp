// Assignment of parameters to units.
#include "comm/fsdp/plan.h"

#include <algorithm>
#include <map>

namespace fsdp::comm {
namespace {

void assign(Module& module, size_t unit, const std::set<const Module*>& wrapped,
            std::vector<PlannedUnit>& units) {
  for (Parameter* parameter : module.own_parameters()) {
    std::vector<Parameter*>& mine = units[unit].parameters;
    if (std::find(mine.begin(), mine.end(), parameter) == mine.end()) mine.push_back(parameter);
  }
  for (Module* child : module.children()) {
    size_t owner = unit;
    if (wrapped.contains(child)) {
      owner = units.size();
      units.push_back(
          {.module = child, .name = child->name(), .depth = units[unit].depth + 1, .around = unit});
    }
    assign(*child, owner, wrapped, units);
  }
}

std::string plan_text(const std::vector<PlannedUnit>& units) {
  std::string text;
  for (const size_t i : wrapping_order(units)) {
    text +=
        fmt::format("\n  {} ({}): {} parameters in {} tensors", units[i].name,
                    units[i].module->class_name(), units[i].numel(), units[i].parameters.size());
  }
  return text;
}

// The name under which `module` or one below it, of the same unit, uses a parameter: its own or
// that of a tie; "" when none does.
std::string name_within(const Module& module, const Parameter& parameter,
                        const std::set<const Module*>& wrapped) {
  const auto& own = module.own_parameters();
  if (std::find(own.begin(), own.end(), &parameter) != own.end()) {
    const std::string& name = parameter.name();
    const std::string here = module.name().empty() ? "" : module.name() + ".";
    return name.starts_with(here) ? name : here + name.substr(name.rfind('.') + 1);
  }
  for (const Module* child : module.children()) {
    if (wrapped.contains(child)) continue;
    if (std::string name = name_within(*child, parameter, wrapped); !name.empty()) return name;
  }
  return {};
}

[[noreturn]] void refuse_split(const std::vector<PlannedUnit>& units, const Parameter& parameter,
                               const PlannedUnit& first, const PlannedUnit& second) {
  std::set<const Module*> wrapped;
  for (const PlannedUnit& unit : units) wrapped.insert(unit.module);
  fail(
      "[fsdp] wrap policy: {} of unit '{}' and {} of unit '{}' are one tied parameter, which must "
      "lie in one unit: leave both to the unit around them (fsdp.wrap, fsdp.wrap_classes, "
      "fsdp.min_num_params), or untie them (model.tie_embeddings: false). PyTorch's plan:{}",
      name_within(*first.module, parameter, wrapped), first.name,
      name_within(*second.module, parameter, wrapped), second.name, plan_text(units));
}

}  // namespace

int64_t PlannedUnit::numel() const {
  int64_t total = 0;
  for (const Parameter* parameter : parameters) total += parameter->numel();
  return total;
}

std::vector<PlannedUnit> unchecked_units(Module& root, const WrapPolicy& policy) {
  std::vector<PlannedUnit> units = {{.module = &root, .name = "root"}};
  assign(root, 0, policy(root), units);
  return units;
}

std::vector<PlannedUnit> plan_units(Module& root, const WrapPolicy& policy) {
  std::vector<PlannedUnit> units = unchecked_units(root, policy);
  std::map<const Parameter*, const PlannedUnit*> owner;
  for (const PlannedUnit& unit : units) {
    for (const Parameter* parameter : unit.parameters) {
      const auto [entry, added] = owner.emplace(parameter, &unit);
      if (!added) refuse_split(units, *parameter, *entry->second, unit);
    }
  }
  return units;
}

std::vector<size_t> wrapping_order(const std::vector<PlannedUnit>& units) {
  std::vector<size_t> order, open;
  for (size_t i = 0; i <= units.size(); ++i) {
    while (!open.empty() && (i == units.size() || units[open.back()].depth >= units[i].depth)) {
      order.push_back(open.back());
      open.pop_back();
    }
    open.push_back(i);
  }
  return order;
}

}  // namespace fsdp::comm
