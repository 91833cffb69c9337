// The options of single units: those of all, with what the overrides that match a unit say.
//
// Parameters and gradients may be kept or given back by each unit as it likes, since all of them
// are sharded over the same groups. Other groups for one unit are refused: the norm of the
// gradients and the agreement on overflow ask one mesh, and replicas of a single unit would count
// several times. A unit that computes in another dtype than the unit around it casts the
// activations that enter it to its param_dtype and those that leave it back (core/module.h);
// gradients take the same way. Masters are in the accumulation dtype of all units, as are position
// tables.
#pragma once

#include <vector>

#include "comm/fsdp/options.h"
#include "comm/fsdp/plan.h"

namespace fsdp::comm {

// One for each unit of the plan, without overrides of their own. Error, "run.yaml:7: fsdp.units:
// ...", when an override matches no unit (lists those there are) or asks for what a single unit
// cannot have. `shards`: ranks of a shard group.
std::vector<FsdpOptions> unit_options(const FsdpOptions& options,
                                      const std::vector<PlannedUnit>& units, int shards);

}  // namespace fsdp::comm
