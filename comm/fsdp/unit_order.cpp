// Recording of a pass and look-ups in it.
#include "comm/fsdp/unit_order.h"

#include <algorithm>
#include <numeric>

namespace fsdp::comm {

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
  if (unit != 0 || begun_.size() != forward_.size()) return;
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
