// Assignment of parameters to units.
#include "comm/fsdp/plan.h"

#include <map>

namespace fsdp::comm {
namespace {

void assign(Module& module, size_t unit, const WrapPredicate& wrap,
            std::vector<PlannedUnit>& units, std::map<Parameter*, size_t>& owner) {
  for (Parameter* parameter : module.own_parameters()) {
    const auto [entry, added] = owner.emplace(parameter, unit);
    if (added) units[unit].parameters.push_back(parameter);
    FSDP_CHECK(entry->second == unit,
               "[fsdp] {}: shared by units '{}' and '{}'; a tied parameter must lie in one unit",
               parameter->name(), units[entry->second].name, units[unit].name);
  }
  for (Module* child : module.children()) {
    if (wrap(*child)) {
      units.push_back({child, child->name(), {}});
      assign(*child, units.size() - 1, wrap, units, owner);
    } else {
      assign(*child, unit, wrap, units, owner);
    }
  }
}

}  // namespace

std::vector<PlannedUnit> plan_units(Module& root, const WrapPredicate& wrap) {
  std::vector<PlannedUnit> units = {{&root, "root", {}}};
  std::map<Parameter*, size_t> owner;
  assign(root, 0, wrap, units, owner);
  return units;
}

}  // namespace fsdp::comm
