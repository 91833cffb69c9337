// Named choices of the configuration that the session carries out as they are.
#pragma once

#include <cstdint>

namespace fsdp::config {

// Which parameters weight decay shrinks: all of two or more dimensions, all, none.
enum class Decay : uint8_t { kMatrices, kAll, kNone };

// The loss of a step: the mean over all label tokens of the global batch; or the mean over ranks
// and micro-steps of each one's mean (PyTorch's habit), where those without labels count as 0.
enum class LossMean : uint8_t { kTokens, kRanks };

// A choice of the program's own, or a guest's (guests.h), for which one of `Own` stands, too.
template <typename Own, typename Guest>
struct OwnOrGuest {
  Own own;
  const Guest* guest;  // null: it is the program's own

  OwnOrGuest(Own own = {}, const Guest* guest = nullptr) : own(own), guest(guest) {}
  operator Own() const { return own; }
  friend bool operator==(const OwnOrGuest& a, const OwnOrGuest& b) = default;
  friend bool operator==(const OwnOrGuest& a, Own b) { return a.own == b; }
};

}  // namespace fsdp::config
