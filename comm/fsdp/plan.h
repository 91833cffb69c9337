// Which parameters are gathered together, and in which order. A wrap policy says which modules
// become units of their own; plan_units() gives each unit its parameters; UnitOrder remembers the
// order in which units are used, for prefetching. Not here: what a unit does (options.h).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/module.h"

namespace fsdp::comm {

// ---- Wrap policies ----

// Modules below the root that run one after the other in every forward, with no other unit's work
// between them: a part of the root that is a unit.
struct ModuleGroup {
  std::string name;              // of the unit
  std::vector<Module*> modules;  // the unit's use begins with the first, and ends with the last
  // No other unit computes between the end of its forward and its backward: it stays gathered
  // meanwhile, as the root does.
  bool awaits_backward = false;
};

// What becomes units. The root always is one: it has what no other unit has.
struct Wrapped {
  Wrapped() = default;
  Wrapped(std::set<const Module*> alone) : modules(std::move(alone)) {}  // NOLINT: of one kind

  std::set<const Module*> modules;       // each is a unit
  std::vector<ModuleGroup> groups = {};  // each is a unit, see split_root()
};

using WrapPolicy = std::function<Wrapped(Module& root)>;

// One unit, the root's.
WrapPolicy wrap_nothing();
// Whatever the caller likes. PyTorch: lambda_auto_wrap_policy.
WrapPolicy wrap_where(std::function<bool(const Module&)> predicate);
// Modules of these classes; of a transformer block's: one unit per block. A name that no module has
// is an error that lists the classes there are. PyTorch: transformer_auto_wrap_policy,
// ModuleWrapPolicy.
WrapPolicy wrap_classes(std::vector<std::string> class_names);
// Goes down only into modules of at least so many parameters; on the way up it wraps a
// module when at least so many of its parameters are in no unit yet. Containers (ModuleList,
// ModuleDict) are never wrapped. PyTorch: size_based_auto_wrap_policy.
WrapPolicy wrap_by_size(int64_t min_num_params);
// `policy`, and each group of which it leaves all modules to the root is a unit, too. PyTorch:
// fully_shard([norm, output]).
WrapPolicy split_root(WrapPolicy policy,
                      std::function<std::vector<ModuleGroup>(Module& root)> groups);

// ---- Units ----

struct PlannedUnit {
  std::vector<Module*> modules;  // one, or those of a group
  std::string name;              // the module's or the group's, "root" for the root
  int depth = 0;                 // how many units are around it
  size_t around = 0;             // index of the innermost of them; the root's own
  bool part_of_root = false;     // a group
  bool awaits_backward = false;  // the root, and a group that says so
  std::vector<Parameter*> parameters = {};

  int64_t numel() const;
};

// Root unit first, then one per wrapped module or group in order of registration, each with the
// parameters below its modules that no unit inside it has. A parameter shared between two units (a
// tie that the policy splits) is an error that names both and shows the plan.
std::vector<PlannedUnit> plan_units(Module& root, const WrapPolicy& policy);

// The same without that check: what PyTorch would wrap. A shared parameter lies in several units.
std::vector<PlannedUnit> unchecked_units(Module& root, const WrapPolicy& policy);

// Indices into the units in the order in which PyTorch wraps them: children before parents, root
// last.
std::vector<size_t> wrapping_order(const std::vector<PlannedUnit>& units);

// One text for each parameter, with its unit and shape: for ranks to compare.
std::vector<std::string> texts_of(const std::vector<PlannedUnit>& units);

// ---- Order of use ----

// The order in which the units were registered, until a forward pass has shown the real one.
//
// [Note: order of use] With units inside units, forward enters A, then A's parts a, b: A a b.
// Backward enters A first as well, then its parts in reverse: A b a. So forward follows the order
// in which forwards begin, backward the reverse of the order in which they end.
// Backward does not reach a unit when neither the unit nor anything before it is trained. Units
// that the last backward did not reach, after a forward that used every unit, are not prefetched.
class UnitOrder {
 public:
  explicit UnitOrder(const std::vector<PlannedUnit>& units);

  // A unit's forward begins and ends; the root's (0) begins and ends a pass. A pass in which every
  // unit was used sets the order.
  void begin_forward(size_t unit);
  void end_forward(size_t unit);
  void begin_backward(size_t unit);
  void end_backward();

  // The unit whose forward begins so many places after that of `unit`.
  std::optional<size_t> forward_after(size_t unit, size_t places) const;
  // Whether its backward has still to begin.
  bool comes_in_backward(size_t unit) const;
  // The unit whose backward begins after the last one that did.
  std::optional<size_t> backward_next() const;

 private:
  static size_t position(const std::vector<size_t>& order, size_t unit);

  std::vector<size_t> forward_, backward_;
  std::vector<size_t> begun_, ended_;  // of this pass
  size_t backward_position_ = 0;
  std::set<size_t> came_, expected_;  // units that this backward reached; that the next will
};

}  // namespace fsdp::comm
