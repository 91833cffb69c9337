// Which parameters are gathered together: the units that follow from a wrap policy (policy.h).
#pragma once

#include <string>
#include <vector>

#include "comm/fsdp/policy.h"

namespace fsdp::comm {

struct PlannedUnit {
  Module* module = nullptr;
  std::string name;   // the module's, "root" for the root
  int depth = 0;      // how many units are around it
  size_t around = 0;  // index of the innermost of them; the root's own
  std::vector<Parameter*> parameters = {};

  int64_t numel() const;
};

// Root unit first, then one per wrapped module in order of registration, each with the parameters
// below its module that no unit inside it has. A parameter shared between two units (a tie that the
// policy splits) is an error that names both and shows the plan.
std::vector<PlannedUnit> plan_units(Module& root, const WrapPolicy& policy);

// The same without that check: what PyTorch would wrap. A shared parameter lies in several units.
std::vector<PlannedUnit> unchecked_units(Module& root, const WrapPolicy& policy);

// Indices into the units in the order in which PyTorch wraps them: children before parents, root
// last.
std::vector<size_t> wrapping_order(const std::vector<PlannedUnit>& units);

}  // namespace fsdp::comm
