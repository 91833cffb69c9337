// Walks over the module tree, assignment of parameters to units, and the record of a pass.
#include "comm/fsdp/plan.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "core/text/similar_names.h"

namespace fsdp::comm {

// ---------------------------------------------------------------------------- Wrap policies

WrapPolicy wrap_nothing() {
  return [](Module&) { return Wrapped(); };
}

WrapPolicy wrap_where(std::function<bool(const Module&)> predicate) {
  return [predicate = std::move(predicate)](Module& root) {
    std::set<const Module*> wrapped;
    for (const Module* module : root.modules()) {
      if (module != &root && predicate(*module)) wrapped.insert(module);
    }
    return wrapped;
  };
}

namespace {

[[noreturn]] void unknown_class(Module& root, const std::string& name) {
  std::set<std::string> known;
  for (const Module* module : root.modules()) known.insert(module->class_name());
  std::vector<std::string> names(known.begin(), known.end());
  std::stable_sort(names.begin(), names.end(), [&](const auto& a, const auto& b) {
    return edit_distance(name, a) < edit_distance(name, b);
  });
  fail("[fsdp] wrap policy: no module of class '{}'; this model has {}", name,
       fmt::join(names, ", "));
}

}  // namespace

WrapPolicy wrap_classes(std::vector<std::string> class_names) {
  return [class_names = std::move(class_names)](Module& root) {
    for (const std::string& name : class_names) {
      const std::vector<Module*> modules = root.modules();
      if (std::none_of(modules.begin(), modules.end(),
                       [&](const Module* m) { return m->class_name() == name; })) {
        unknown_class(root, name);
      }
    }
    return wrap_where([&](const Module& module) {
      return std::find(class_names.begin(), class_names.end(), module.class_name()) !=
             class_names.end();
    })(root);
  };
}

namespace {

// Returns how many of `module`'s parameters are in units now.
int64_t wrap_large(const Module& module, int64_t min_num_params, std::set<const Module*>& wrapped) {
  int64_t numel = 0, taken = 0;
  for (const Parameter* parameter : module.parameters()) numel += parameter->numel();
  if (numel < min_num_params) return 0;
  for (const Module* child : module.children()) {
    taken += wrap_large(*child, min_num_params, wrapped);
  }
  const bool container = module.class_name() == "ModuleList" || module.class_name() == "ModuleDict";
  if (container || numel - taken < min_num_params) return taken;
  wrapped.insert(&module);
  return numel;
}

}  // namespace

WrapPolicy wrap_by_size(int64_t min_num_params) {
  FSDP_CHECK(min_num_params > 0, "[fsdp] min_num_params: expected a positive number, got {}",
             min_num_params);
  return [min_num_params](Module& root) {
    std::set<const Module*> wrapped;
    for (const Module* child : root.children()) wrap_large(*child, min_num_params, wrapped);
    return wrapped;
  };
}

namespace {

// `module` and those below it that are in no unit of their own.
void add_left(Module& module, const std::set<const Module*>& wrapped,
              std::set<const Module*>& left) {
  left.insert(&module);
  for (Module* child : module.children()) {
    if (!wrapped.contains(child)) add_left(*child, wrapped, left);
  }
}

}  // namespace

WrapPolicy split_root(WrapPolicy policy,
                      std::function<std::vector<ModuleGroup>(Module& root)> groups) {
  return [policy = std::move(policy), groups = std::move(groups)](Module& root) {
    Wrapped wrapped = policy(root);
    std::set<const Module*> left;
    add_left(root, wrapped.modules, left);
    for (ModuleGroup& group : groups(root)) {
      const bool whole = std::all_of(group.modules.begin(), group.modules.end(),
                                     [&](const Module* m) { return left.contains(m); });
      if (whole && !group.modules.empty()) wrapped.groups.push_back(std::move(group));
    }
    return wrapped;
  };
}

// ---------------------------------------------------------------------------- Units

namespace {

class Planner {
 public:
  Planner(Module& root, const Wrapped& wrapped) : wrapped_(wrapped) {
    units_.push_back({.modules = {&root}, .name = "root", .awaits_backward = true});
    assign(root, 0);
  }
  std::vector<PlannedUnit> units() && { return std::move(units_); }

 private:
  void assign(Module& module, size_t unit) {
    for (Parameter* parameter : module.own_parameters()) {
      std::vector<Parameter*>& mine = units_[unit].parameters;
      if (std::find(mine.begin(), mine.end(), parameter) == mine.end()) mine.push_back(parameter);
    }
    for (Module* child : module.children()) assign(*child, owner_of(*child, unit));
  }

  // The unit of a module inside `around`.
  size_t owner_of(Module& module, size_t around) {
    if (wrapped_.modules.contains(&module)) {
      return add({.modules = {&module}, .name = module.name()}, around);
    }
    for (const ModuleGroup& group : wrapped_.groups) {
      const auto& modules = group.modules;
      if (std::find(modules.begin(), modules.end(), &module) == modules.end()) continue;
      const auto [unit, added] = groups_.emplace(&group, units_.size());
      if (!added) return unit->second;
      return add({.modules = modules,
                  .name = group.name,
                  .part_of_root = true,
                  .awaits_backward = group.awaits_backward},
                 around);
    }
    return around;
  }

  size_t add(PlannedUnit unit, size_t around) {
    unit.depth = units_[around].depth + 1;
    unit.around = around;
    units_.push_back(std::move(unit));
    return units_.size() - 1;
  }

  const Wrapped& wrapped_;
  std::map<const ModuleGroup*, size_t> groups_;  // the unit of each
  std::vector<PlannedUnit> units_;
};

std::string plan_text(const std::vector<PlannedUnit>& units) {
  std::string text;
  for (const size_t i : wrapping_order(units)) {
    text += fmt::format("\n  {} ({}): {} parameters in {} tensors", units[i].name,
                        units[i].modules[0]->class_name(), units[i].numel(),
                        units[i].parameters.size());
  }
  return text;
}

// The name under which `module` or one below it, of the same unit, uses a parameter: its own or
// that of a tie; "" when none does.
std::string name_below(const Module& module, const Parameter& parameter,
                       const std::set<const Module*>& wrapped) {
  const auto& own = module.own_parameters();
  if (std::find(own.begin(), own.end(), &parameter) != own.end()) {
    const std::string& name = parameter.name();
    const std::string here = module.name().empty() ? "" : module.name() + ".";
    return name.starts_with(here) ? name : here + name.substr(name.rfind('.') + 1);
  }
  for (const Module* child : module.children()) {
    if (wrapped.contains(child)) continue;
    if (std::string name = name_below(*child, parameter, wrapped); !name.empty()) return name;
  }
  return {};
}

std::string name_within(const PlannedUnit& unit, const Parameter& parameter,
                        const std::set<const Module*>& wrapped) {
  std::string name;
  for (const Module* module : unit.modules) {
    if (name.empty()) name = name_below(*module, parameter, wrapped);
  }
  return name;
}

[[noreturn]] void refuse_split(const std::vector<PlannedUnit>& units, const Parameter& parameter,
                               const PlannedUnit& first, const PlannedUnit& second) {
  std::set<const Module*> wrapped;
  for (const PlannedUnit& unit : units) wrapped.insert(unit.modules.begin(), unit.modules.end());
  fail(
      "[fsdp] wrap policy: {} of unit '{}' and {} of unit '{}' are one tied parameter, which must "
      "lie in one unit: leave both to the unit around them (fsdp.wrap, fsdp.wrap_classes, "
      "fsdp.min_num_params), or untie them (model.tie_embeddings: false). PyTorch's plan:{}",
      name_within(first, parameter, wrapped), first.name, name_within(second, parameter, wrapped),
      second.name, plan_text(units));
}

}  // namespace

int64_t PlannedUnit::numel() const {
  int64_t total = 0;
  for (const Parameter* parameter : parameters) total += parameter->numel();
  return total;
}

std::vector<PlannedUnit> unchecked_units(Module& root, const WrapPolicy& policy) {
  const Wrapped wrapped = policy(root);
  return Planner(root, wrapped).units();
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

std::vector<std::string> texts_of(const std::vector<PlannedUnit>& units) {
  std::vector<std::string> texts;
  for (const PlannedUnit& unit : units) {
    for (const Parameter* p : unit.parameters) {
      texts.push_back(fmt::format("unit {}: {} {}{}", unit.name, p->name(), p->shape().str(),
                                  p->trainable() ? "" : " frozen"));
    }
  }
  return texts;
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

// ---------------------------------------------------------------------------- Order of use

UnitOrder::UnitOrder(const std::vector<PlannedUnit>& units)
    : forward_(units.size()), backward_(wrapping_order(units)) {
  std::iota(forward_.begin(), forward_.end(), size_t{0});
  std::reverse(backward_.begin(), backward_.end());
  expected_.insert(backward_.begin(), backward_.end());
}

void UnitOrder::begin_forward(size_t unit) {
  if (unit == 0) {
    begun_.clear();
    ended_.clear();
  }
  if (std::find(begun_.begin(), begun_.end(), unit) == begun_.end()) begun_.push_back(unit);
}

void UnitOrder::end_forward(size_t unit) {
  std::erase(ended_, unit);  // used twice: backward meets the last use first
  ended_.push_back(unit);
  // Of what only begins, such as a head that is left out of a look at the blocks, nothing is
  // learnt.
  const size_t all = forward_.size();
  if (unit != 0 || begun_.size() != all || ended_.size() != all) return;
  forward_ = begun_;
  backward_.assign(ended_.rbegin(), ended_.rend());
}

size_t UnitOrder::position(const std::vector<size_t>& order, size_t unit) {
  return static_cast<size_t>(std::find(order.begin(), order.end(), unit) - order.begin());
}

std::optional<size_t> UnitOrder::forward_after(size_t unit, size_t places) const {
  const size_t i = position(forward_, unit) + places;
  return i < forward_.size() ? std::optional(forward_[i]) : std::nullopt;
}

void UnitOrder::begin_backward(size_t unit) {
  backward_position_ = position(backward_, unit);
  came_.insert(unit);
}

void UnitOrder::end_backward() {
  if (begun_.size() == forward_.size()) expected_ = came_;
  came_.clear();
}

bool UnitOrder::comes_in_backward(size_t unit) const {
  return position(backward_, unit) > backward_position_ && expected_.contains(unit);
}

std::optional<size_t> UnitOrder::backward_next() const {
  for (size_t i = backward_position_ + 1; i < backward_.size(); ++i) {
    if (expected_.contains(backward_[i])) return backward_[i];
  }
  return std::nullopt;
}

}  // namespace fsdp::comm
