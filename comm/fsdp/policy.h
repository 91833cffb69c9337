// Wrap policies: which modules become FSDP units of their own. What is in no unit belongs to the
// unit of the module around it, at last to the root's. Next: plan.h, which parameters follow from
// that.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "core/module.h"

namespace fsdp::comm {

// The modules below `root` that become units. The root always is one.
using WrapPolicy = std::function<std::set<const Module*>(Module& root)>;

// One unit, the root's.
WrapPolicy wrap_nothing();
// Whatever the caller likes. PyTorch: lambda_auto_wrap_policy.
WrapPolicy wrap_where(std::function<bool(const Module&)> predicate);
// Modules of these classes; of a transformer block's: one unit per block. A name that no module has
// is an error that lists the classes there are. PyTorch: transformer_auto_wrap_policy,
// ModuleWrapPolicy.
WrapPolicy wrap_classes(std::vector<std::string> class_names);
// Goes down only into modules of at least so many parameters; on the way back up wraps a module
// when those that no unit below it took are at least so many. Containers (ModuleList, ModuleDict)
// are never wrapped. PyTorch: size_based_auto_wrap_policy.
WrapPolicy wrap_by_size(int64_t min_num_params);

}  // namespace fsdp::comm
