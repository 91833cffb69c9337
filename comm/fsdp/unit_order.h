// In which order the units of a model are used, for prefetching: that of their registration until a
// forward pass has shown the real one.
//
// [Note: order of use] With units inside units, forward enters A, then A's parts a, b: A a b.
// Backward enters A first as well, then its parts in reverse: A b a. So forward follows the order
// in which forwards begin, backward the reverse of the order in which they end.
// Backward does not come to units below which nothing is trained: what the last backward left out,
// after a forward that left out nothing, is not prefetched.
#pragma once

#include <optional>
#include <set>

#include "comm/fsdp/plan.h"

namespace fsdp::comm {

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
  std::set<size_t> came_, expected_;  // in this backward; in the next
};

}  // namespace fsdp::comm
