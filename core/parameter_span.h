// Parameters that an op takes as one tensor: their values lie side by side in one storage, in this
// order. So do their gradients, which are written by one kernel. They stay parameters of their own
// to everybody else: names, shards, optimizer, checkpoints. Who lays them side by side:
// core/flat_layout.h. Who uses them: core/ops/linear.h.
#pragma once

#include <vector>

#include "core/autograd.h"

namespace fsdp {

class ParameterSpan {
 public:
  explicit ParameterSpan(Parameter& parameter) : parts_({&parameter}) {}
  // Error unless side_by_side(). Used together always, and none by itself: their gradients come at
  // the same times.
  explicit ParameterSpan(std::vector<Parameter*> parts);
  // Whether all are trained or none, differ in their first extents at most, and have values that
  // lie so, without gaps.
  static bool side_by_side(const std::vector<Parameter*>& parts);

  const std::string& name() const { return parts_[0]->name(); }  // of the first
  Shape shape() const;   // of the first, with the first extents of all added up
  Tensor value() const;  // in that shape
  bool trainable() const { return parts_[0]->trainable(); }
  bool recording() const { return parts_[0]->recording(); }
  Tape* tape() const { return parts_[0]->tape(); }
  // As those of a parameter.
  void add_use() const;
  GradientTarget begin_gradient() const;
  void end_gradient() const;

 private:
  std::vector<Parameter*> parts_;  // at least one
};

}  // namespace fsdp
