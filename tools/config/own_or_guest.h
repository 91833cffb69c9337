// A value of a key that is one of the program's own, or a guest's.
#pragma once

namespace fsdp::config {

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
