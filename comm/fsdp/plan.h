// Which parameters are gathered together.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/module.h"

namespace fsdp::comm {

struct PlannedUnit {
  Module* module = nullptr;
  std::string name;  // the module's, "root" for the root
  std::vector<Parameter*> parameters;
};

using WrapPredicate = std::function<bool(const Module&)>;

// One unit per module that `wrap` accepts, in order of registration, after the root unit (first),
// which holds everything else. A parameter shared between two units is an error that names both.
std::vector<PlannedUnit> plan_units(Module& root, const WrapPredicate& wrap);

}  // namespace fsdp::comm
