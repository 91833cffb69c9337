// Views over several parameters' values and gradients.
#include "core/parameter_span.h"

#include <algorithm>

namespace fsdp {
namespace {

// Rows of a matrix, or elements of a vector, that continue those of another.
bool follows(const Tensor& before, const Tensor& tensor) {
  const std::vector<int64_t> extents = tensor.shape().extents(), others = before.shape().extents();
  return !extents.empty() && extents.size() == others.size() &&
         std::equal(extents.begin() + 1, extents.end(), others.begin() + 1) &&
         tensor.storage() == before.storage() && tensor.dtype() == before.dtype() &&
         tensor.byte_offset() == before.byte_offset() + static_cast<int64_t>(before.bytes());
}

}  // namespace

bool ParameterSpan::side_by_side(const std::vector<Parameter*>& parts) {
  const auto apart = [](const Parameter* before, const Parameter* part) {
    return part->trainable() != before->trainable() || !follows(before->value(), part->value());
  };
  return std::adjacent_find(parts.begin(), parts.end(), apart) == parts.end();
}

ParameterSpan::ParameterSpan(std::vector<Parameter*> parts) : parts_(std::move(parts)) {
  FSDP_CHECK(!parts_.empty() && side_by_side(parts_),
             "[parameter_span] parts: expected parameters side by side, got {} that are not",
             parts_.size());
}

Shape ParameterSpan::shape() const {
  std::vector<int64_t> extents = parts_[0]->shape().extents();
  for (size_t i = 1; i < parts_.size(); ++i) extents[0] += parts_[i]->shape()[0];
  return Shape(extents);
}

Tensor ParameterSpan::value() const {
  const Tensor& first = parts_[0]->value();
  return Tensor(first.storage(), first.byte_offset(), shape(), first.dtype());
}

void ParameterSpan::add_use() const {
  for (Parameter* part : parts_) part->add_use();
}

GradientTarget ParameterSpan::begin_gradient() const {
  Tensor memory;  // of all, where the parts would allocate their own
  int64_t begun = 0;
  const auto allocate = [&](Backend& backend, Shape part, DType dtype) {
    if (!memory.defined()) {
      memory = Tensor::empty(backend, shape(), dtype, MemoryCategory::kGradient);
    }
    return memory.slice(begun, part);
  };
  GradientTarget all;
  Tensor before;
  for (Parameter* part : parts_) {
    const GradientTarget target = part->begin_gradient(/*several=*/false, allocate);
    begun += part->numel();
    const bool first = part == parts_[0];
    FSDP_CHECK(first || (follows(before, target.tensor) && target.accumulate == all.accumulate),
               "[parameter_span] {}: its gradient is not that of {} continued: one of the two was "
               "used alone",
               part->name(), name());
    before = target.tensor;
    if (first) all = target;
  }
  all.tensor = Tensor(all.tensor.storage(), all.tensor.byte_offset(), shape(), all.tensor.dtype());
  return all;
}

void ParameterSpan::end_gradient() const {
  for (Parameter* part : parts_) part->end_gradient();
}

}  // namespace fsdp
